package main

import (
	"math/rand/v2"
	"time"

	"firn/tiering"
)

const (
	topic     = "t"
	minInsync = 2
	brokers   = 3
)

// plan is what a seed makes of a run.
type plan struct {
	seed       uint64
	partitions int
	producers  int // for each partition
	consumers  int
	think      time.Duration // between two writes of a producer, at most
	// hurry is the same for those who write with acks=1.
	hurry time.Duration
	// flushMessages is flush.messages: 1 makes every ack wait for its fsync (S6).
	flushMessages int64
	policy        tiering.Policy
	grace         time.Duration
	sweepEvery    time.Duration
	// faultEvery is the mean time between two faults.
	faultEvery time.Duration
	// deletes: records are deleted by their offset, too.
	deletes bool
	// balance is how often leaderships are given back to preferred leaders, who
	// take them from leaders that are well; 0 for never.
	balance time.Duration
	// skip are faults that are left out, by their number.
	skip map[int]bool
	// unclean: losses of power may take more than the replicas can bear, and only
	// what no disk holds may be gone.
	unclean bool
	// reserve is log.dir.min.free.bytes; -1 for none: then it is failing writes that
	// tell of a full disk.
	reserve int64
	// fills: in the end, when all is well, a leader's disk is filled.
	fills bool
}

func newPlan(seed uint64) plan {
	r := rand.New(rand.NewPCG(seed, 0x706c616e))
	p := plan{
		seed:       seed,
		partitions: 1 + r.IntN(2),
		producers:  1 + r.IntN(2),
		consumers:  1,
		think:      time.Duration(40+r.IntN(120)) * time.Millisecond,
		hurry:      time.Duration(100+r.IntN(1500)) * time.Millisecond,
		grace:      time.Duration(50+r.IntN(3000)) * time.Millisecond,
		sweepEvery: 5 * time.Second,
		faultEvery: time.Duration(1000+r.IntN(2500)) * time.Millisecond,
		policy: tiering.Policy{
			Enabled: true, RetentionMs: -1, RetentionBytes: -1,
			LocalRetentionMs: int64(500 + r.IntN(4000)), LocalRetentionBytes: -1,
			RollAfter: time.Duration(500+r.IntN(3000)) * time.Millisecond, RollSmallAfter: 8 * time.Second, RollBytes: 1,
		},
	}
	if r.IntN(4) == 0 {
		p.flushMessages = 1
	}
	switch r.IntN(4) {
	case 0:
		p.policy.RetentionBytes = int64(10_000 + r.IntN(40_000))
	case 1:
		p.policy.RetentionMs = int64(8000 + r.IntN(20_000))
	}
	if r.IntN(2) == 0 {
		p.balance = time.Duration(2000+r.IntN(4000)) * time.Millisecond
	}
	p.deletes = r.IntN(3) == 0
	p.unclean = p.flushMessages == 1 && r.IntN(2) == 0
	p.reserve = -1
	if r.IntN(2) == 0 {
		p.reserve = 2000
	}
	p.fills = r.IntN(3) == 0
	return p
}

// enough says whether a run has seen what makes it count.
func (c *counts) enough() bool {
	return c.of("acknowledged writes") >= 500 && c.of("faults") >= 10 && c.of("leader changes") >= 3 &&
		c.of("uploads") >= 5 && c.of("local deletions") >= 1 && c.of("cold reads") >= 1
}
