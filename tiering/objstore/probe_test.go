package objstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
)

// overwriting is a store that ignores If-None-Match.
type overwriting struct{ *Mem }

func (s overwriting) Create(ctx context.Context, key string, value []byte) error {
	return putString(ctx, s, key, string(value))
}

func TestProbeSaysWhatToDo(t *testing.T) {
	denied := fmt.Errorf("403: %w", ErrDenied)
	for _, c := range []struct {
		name, step, do string
		store          func(*Mem) Store
	}{
		{"down", "write an object", "archive.url", func(m *Mem) Store {
			return Inject(m, func(Op) Fault { return Fault{Before: errDown} })
		}},
		{"may not write", "write an object", "s3:PutObject", func(m *Mem) Store {
			return Inject(m, faultOn(OpPut, Fault{Before: denied}))
		}},
		{"overwrites", "only if it is absent", "If-None-Match", func(m *Mem) Store { return overwriting{m} }},
		{"no conditional write", "only if it is absent", "If-None-Match", func(m *Mem) Store {
			return Inject(m, faultOn(OpCreate, Fault{Before: fmt.Errorf("501: %w", errors.ErrUnsupported)}))
		}},
		{"may not read", "read a range", "s3:GetObject", func(m *Mem) Store {
			return Inject(m, faultOn(OpGet, Fault{Before: denied}))
		}},
		{"changes replies", "read a range", "proxy", func(m *Mem) Store {
			return Inject(m, faultOn(OpGet, Fault{Corrupt: func(_ int64, b []byte) { b[0]++ }}))
		}},
		{"missing looks denied", "does not exist", "s3:ListBucket", func(m *Mem) Store {
			return Inject(m, func(op Op) Fault {
				if op.Kind == OpGet && strings.HasSuffix(op.Key, "-none") {
					return Fault{Before: denied}
				}
				return Fault{}
			})
		}},
		{"may not list", "list", "s3:ListBucket", func(m *Mem) Store {
			return Inject(m, faultOn(OpList, Fault{Before: denied}))
		}},
		{"may not delete", "delete", "s3:DeleteObject", func(m *Mem) Store {
			return Inject(m, faultOn(OpDelete, Fault{Before: denied}))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := Probe(t.Context(), c.store(NewMem()))
			var p *ProbeError
			if !errors.As(err, &p) {
				t.Fatalf("Probe = %v, want a *ProbeError", err)
			}
			if !strings.Contains(p.Step, c.step) || !strings.Contains(p.Do, c.do) {
				t.Errorf("Probe = %v\nwant the step %q and the advice %q", err, c.step, c.do)
			}
		})
	}
}

func TestProbeWaitsForWhatWasJustWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMem()
		if err := Probe(t.Context(), Inject(m, faultOn(OpPut, Fault{Hide: 3}))); err != nil {
			t.Errorf("Probe = %v", err)
		}
		if got := m.Keys(); len(got) != 0 {
			t.Errorf("left %q", got)
		}
	})
}

// TestProbeOfAStoreThatRefusesAsksOnce: a start waits for the answer.
func TestProbeOfAStoreThatRefusesAsksOnce(t *testing.T) {
	asked := 0
	s := Inject(NewMem(), func(Op) Fault {
		asked++
		return Fault{Before: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}
	})
	if err := Probe(t.Context(), s); !errors.Is(err, syscall.ECONNREFUSED) || asked != 1 {
		t.Errorf("%d requests, %v", asked, err)
	}
}
