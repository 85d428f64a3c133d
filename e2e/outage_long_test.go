//go:build long

package e2e

import (
	"testing"
	"time"
)

func TestLongQuorumLoss(t *testing.T) {
	for _, session := range []time.Duration{2 * time.Second, 6 * time.Second} {
		t.Run(session.String(), func(t *testing.T) {
			t.Parallel()
			loseQuorum(t, session, 2*time.Minute)
		})
	}
}

// At the default session timeout.
func TestLongFailover(t *testing.T) { failover(t, 18*time.Second) }
