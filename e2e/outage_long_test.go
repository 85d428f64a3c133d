//go:build long

package e2e

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"firn/e2e/harness"
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

// failover is how long after SIGKILL of the leader the next record is acknowledged.
func failover(t *testing.T, session time.Duration) {
	const tick = 500 * time.Millisecond
	c := harness.StartCluster(t, harness.ClusterOptions{SessionMillis: int(session.Milliseconds())})
	adm := kadm.NewClient(clusterClient(t, c))
	createInSync(t, c, adm, "t", 1)
	w := startWriter(t, c, "t")
	var took []string
	for range 2 {
		killed := c.Broker(leaderOf(t, adm, "t", 0))
		at := time.Now()
		killed.Kill()
		w.more(20)
		gap := w.gap(at)
		took = append(took, gap.Round(time.Millisecond).String())
		if gap > session+tick+time.Second {
			t.Errorf("SIGKILL of the leader: %v without an ack", gap)
		}
		killed.Restart()
		allInSync(t, c, "t")
	}
	t.Logf("session %v: SIGKILL of the leader, next ack after %v", session, took)
	whole(t, c, "t", w.stop())
}
