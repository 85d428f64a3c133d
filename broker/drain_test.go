package broker

import (
	"testing"
	"time"

	"firn/replication/meta"
)

// slowDrain has a stop wait three times five minutes for what isn't to be waited for.
const slowDrain = "controlled.shutdown.retry.backoff.ms=300000"

// A broker that is asked to stop has others lead first, so that no partition with
// another replica in sync is without a leader.
func TestAStopHasOthersLeadFirst(t *testing.T) {
	c := startCluster(t, 3, slowDrain)
	c.create("t", [][]int32{{1, 2}, {1, 3}})
	c.create("alone", [][]int32{{1}})
	c.leader("t", 0)
	c.leader("t", 1)
	c.leader("alone", 0)
	n := c.node(1)
	began := time.Now()
	n.stop()
	if took := time.Since(began); took > patience {
		t.Errorf("it took %v", took)
	}
	for p, want := range map[int32]int32{0: 2, 1: 3} {
		if got := c.leader("t", p); got.id != want {
			t.Errorf("t-%d is led by %d, want %d", p, got.id, want)
		}
	}
	o, err := meta.LoadOffline(t.Context(), c.tree.Begin(), 1)
	if err != nil || o.Draining != 1 {
		t.Errorf("listed as draining: %+v, %v", o, err)
	}
	n.start() // the next registration drains no more
	if got := c.leader("alone", 0); got != n {
		t.Errorf("alone-0 is led by %d", got.id)
	}
	r, err := meta.LoadRegistration(t.Context(), c.tree.Begin(), 1)
	if err != nil || r.ValidFrom != 1 || r.Clean != nil {
		t.Errorf("registration after a clean stop: %+v, %v", r, err)
	}
}

func TestAStopWaitsForNobodyWhoCantLead(t *testing.T) {
	c := startCluster(t, 2, slowDrain)
	c.create("t", [][]int32{{1, 2}})
	c.create("alone", [][]int32{{1}})
	c.leader("t", 0)
	c.leader("alone", 0)
	c.crash(2)
	eventually(t, "broker 2 is gone", func() bool { return len(c.node(1).topics.Load().brokers) == 1 })
	began := time.Now()
	c.node(1).stop()
	if took := time.Since(began); took > patience {
		t.Errorf("it took %v", took)
	}
}

func TestAStopDoesntWaitLongForAStoreThatIsAway(t *testing.T) {
	c := startCluster(t, 2, slowDrain)
	c.create("t", [][]int32{{1, 2}})
	c.leader("t", 0)
	c.store(1).Cut()
	began := time.Now()
	c.node(1).crashed = true
	c.node(1).stop()
	if took := time.Since(began); took > patience {
		t.Errorf("it took %v", took)
	}
}
