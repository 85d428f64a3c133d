package metatest

import (
	"testing"

	"firn/replication/meta"
)

func TestMemory(t *testing.T) {
	Run(t, func(*testing.T) Harness {
		tree := meta.NewMemory()
		return Harness{
			Many:  true,
			Begin: func() meta.Store { return tree.Begin() },
			End:   func(s meta.Store) { s.(*meta.MemorySession).End() },
		}
	})
}

func TestMemoryClient(t *testing.T) {
	Run(t, func(*testing.T) Harness {
		tree := meta.NewMemory()
		c := tree.Client()
		return Harness{
			Begin: func() meta.Store { return c },
			End:   func(meta.Store) { c.Expire() },
		}
	})
}
