package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"firn/replication"
	"firn/segment"
	"firn/segment/batch"
)

// client is one that writes to and reads from the cluster. It has a source of
// chance of its own, so that what it does hangs on nothing that runs beside it.
type client struct {
	w    *world
	name string
	rng  *rand.Rand
	n    int // requests
	// epoch is the latest leader epoch that it has had an answer of.
	epoch int32
}

func newClient(w *world, name string, n uint64) *client {
	return &client{w: w, name: name, rng: rand.New(rand.NewPCG(w.plan.seed, 1000+n))}
}

func (c *client) pause(ctx context.Context, d time.Duration) error {
	return c.w.s.wait(ctx, c.name, nil, exactly(d))
}

func (c *client) request(what string) string {
	c.n++
	return fmt.Sprintf("%s #%d", what, c.n)
}

// target is whom to ask about a partition: mostly its leader.
func (c *client) target(part int32) *machine {
	if c.rng.IntN(8) > 0 {
		if id := c.w.leader(part); id >= 0 {
			return c.w.machines[id]
		}
	}
	return c.w.machines[c.rng.IntN(len(c.w.machines))]
}

// produced is the answer to a produce.
type produced struct {
	first, last int64
	epoch       int32 // of the leader who answers
	err         error
}

// produce writes batch after batch with acks=all as one idempotent producer: a
// batch whose outcome isn't known is sent again until it is.
func (c *client) produce(ctx context.Context, part int32) {
	id := c.w.producerID()
	sequence := int32(0)
	for n := 0; ctx.Err() == nil; {
		count := 1 + c.rng.IntN(4)
		values := make([]string, count)
		for i := range values {
			values[i] = fmt.Sprintf("%s/%d/%d", c.name, n, i) + strings.Repeat(".", c.rng.IntN(60))
		}
		n++
		if c.w.history.sent(part, values); !c.send(ctx, part, &id, &sequence, values) {
			return
		}
		if c.pause(ctx, time.Duration(c.rng.IntN(int(c.w.plan.think)))) != nil {
			return
		}
	}
}

// send sends one batch until it is acknowledged; false when the run ends first.
func (c *client) send(ctx context.Context, part int32, id *int64, sequence *int32, values []string) bool {
	for ctx.Err() == nil {
		to := c.target(part)
		b := batch.NewBuilder(batch.Spec{Producer: &batch.Producer{ID: *id, Sequence: *sequence}})
		for _, v := range values {
			b.Add(to.now().UnixMilli(), nil, []byte(v))
		}
		raw, err := b.Build()
		if err != nil {
			c.w.fail("%s: %v", c.name, err)
			return false
		}
		request := c.request("produce")
		a, err := call(ctx, c.w, nil, c.name, to, request, patience, func(ctx context.Context, p *process) produced {
			return p.serveProduce(ctx, c.name+" "+request, part, raw)
		})
		if err == nil {
			err = a.err
		}
		switch {
		case err == nil:
			c.w.s.trace.note(c.name, "acked %d to %d on %d", a.first, a.last, part)
			c.w.history.acked(part, a.first, values)
			c.w.counts.add("acknowledged writes", 1)
			*sequence += int32(len(values))
			c.epoch = max(c.epoch, a.epoch)
			return true
		case errors.Is(err, segment.ErrOutOfOrderSequence) && a.epoch < c.epoch:
			// A leader of the past, who doesn't know of it yet. A client that has
			// seen a later epoch in Metadata doesn't ask it.
		case errors.Is(err, segment.ErrOutOfOrderSequence):
			// All before it was acknowledged, so it must be there; see history.
			c.w.counts.add("sequences refused", 1)
			c.w.refusedSequence(part, *id, *sequence, to)
			*id, *sequence = c.w.producerID(), 0
		}
		if c.pause(ctx, time.Duration(20+c.rng.IntN(80))*time.Millisecond) != nil {
			return false
		}
	}
	return false
}

// hurry writes with acks=1 and doesn't care: what makes logs differ where leaders
// change.
func (c *client) hurry(ctx context.Context, part int32) {
	for n := 0; c.pause(ctx, time.Duration(c.rng.IntN(int(c.w.plan.hurry)))) == nil; n++ {
		to := c.target(part)
		for i := range 1 + c.rng.IntN(8) {
			b := batch.NewBuilder(batch.Spec{})
			v := fmt.Sprintf("%s/%d/%d", c.name, n, i) + strings.Repeat(".", c.rng.IntN(60))
			c.w.history.sent(part, []string{v})
			b.Add(to.now().UnixMilli(), nil, []byte(v))
			raw, err := b.Build()
			if err != nil {
				c.w.fail("%s: %v", c.name, err)
				return
			}
			if _, err := call(ctx, c.w, nil, c.name, to, c.request("produce"), patience, func(_ context.Context, p *process) error {
				if !p.opened.Load() {
					return errRefused
				}
				_, err := p.parts[part].part.Append(raw, replication.AppendOptions{Epoch: replication.AnyEpoch, Now: p.m.now().UnixMilli()})
				return err
			}); err != nil {
				break
			}
		}
	}
}

// serveProduce appends and waits for the ack, as broker's Produce does. request
// tells it apart from a repetition of it that waits for the same offset.
func (p *process) serveProduce(ctx context.Context, request string, index int32, raw []byte) produced {
	if !p.opened.Load() {
		return produced{err: errRefused}
	}
	part := p.parts[index].part
	b := append([]byte(nil), raw...)
	_, epoch, _ := part.Leader()
	a, err := part.Append(b, replication.AppendOptions{Epoch: replication.AnyEpoch, All: true, Now: p.m.now().UnixMilli()})
	if err != nil {
		return produced{epoch: epoch, err: err}
	}
	w := replication.NewWaiter()
	defer w.Reset(0)
	w.Add(part, a.Last, segment.UntilHighWatermark)
	timeout := time.NewTimer(patience * 3 / 4)
	defer timeout.Stop()
	for {
		done, err := part.Acked(a)
		if err != nil {
			return produced{err: err}
		}
		if done {
			p.w.checkAck(p, index, a)
			return produced{first: a.First, last: a.Last, epoch: a.Epoch}
		}
		select {
		case <-w.C():
			if err := p.pause(ctx, fmt.Sprintf("ack of %d-%d for %s", index, a.Last, request), 20*time.Microsecond); err != nil {
				return produced{err: err}
			}
			w.Reset(0)
			w.Add(part, a.Last, segment.UntilHighWatermark)
		case <-timeout.C:
			return produced{err: errTimeout}
		case <-ctx.Done():
			return produced{err: context.Cause(ctx)}
		}
	}
}

// fetched is the answer to a consumer's fetch.
type fetched struct {
	offsets segment.Offsets
	records []byte
	err     error
	cold    bool
}

// consume reads from the log start to the end, again and again, from the leader
// or from any replica.
func (c *client) consume(ctx context.Context, part int32) {
	next := int64(0)
	for ctx.Err() == nil {
		if c.rng.IntN(4) == 0 {
			c.latest(ctx, part)
		}
		to := c.target(part)
		view := replication.View{Epoch: replication.AnyEpoch, Follower: c.rng.IntN(3) == 0}
		at := next
		a, err := call(ctx, c.w, nil, c.name, to, c.request("fetch"), patience, func(ctx context.Context, p *process) fetched {
			return p.serveConsumer(ctx, part, at, view)
		})
		if err == nil {
			err = a.err
		}
		switch {
		case err == nil && len(a.records) > 0:
			next = c.w.history.read(c.name, part, at, a.records)
			if a.cold {
				c.w.counts.add("cold reads", 1)
			}
			c.w.counts.add("reads", 1)
			if c.pause(ctx, time.Duration(1+c.rng.IntN(20))*time.Millisecond) != nil {
				return
			}
			continue
		case err == nil && !view.Follower && at >= a.offsets.HighWatermark:
			next = a.offsets.LogStart + int64(c.rng.IntN(int(max(1, at-a.offsets.LogStart))))
		case errors.Is(err, segment.ErrOffsetOutOfRange):
			c.w.checkOutOfRange(c.name, part, at, a.offsets, view)
			next = max(next, a.offsets.LogStart)
		}
		if c.pause(ctx, time.Duration(1+c.rng.IntN(150))*time.Millisecond) != nil {
			return
		}
	}
}

// stale is how old the answer of a leader may be that has been replaced and
// doesn't know it: past its own lease it goes by what its followers have proven,
// which is good for as long (§5).
var stale = replication.LeaseTimes(sessionTimeout).Length

// latest asks for the end of what can be read, of who says that it leads: what
// was acknowledged well before the question is in it (A10, A11).
func (c *client) latest(ctx context.Context, part int32) {
	type answer struct {
		end int64
		err error
	}
	acked := c.w.history.ackedEnd(part, time.Now().Add(-stale))
	to := c.target(part)
	a, err := call(ctx, c.w, nil, c.name, to, c.request("latest"), patience, func(_ context.Context, p *process) answer {
		if !p.opened.Load() {
			return answer{err: errRefused}
		}
		end, err := p.parts[part].part.Latest(replication.View{Epoch: replication.AnyEpoch}, segment.UntilHighWatermark)
		return answer{end, err}
	})
	if err != nil || a.err != nil {
		return
	}
	c.w.counts.add("ends told", 1)
	if a.end < acked {
		c.w.fail("A11: %v tells %s that partition %d ends at %d; up to %d was acknowledged before it was asked", to, c.name, part, a.end, acked)
	}
}

// administer deletes records now and then.
func (c *client) administer(ctx context.Context, part int32) {
	for c.pause(ctx, time.Duration(1000+c.rng.IntN(6000))*time.Millisecond) == nil {
		start := c.w.tree[part].ptr.LogStart
		start += int64(c.rng.IntN(int(max(1, c.w.history.end(part)-start)))) / 2
		_, err := call(ctx, c.w, nil, c.name, c.target(part), c.request("delete records"), 2*patience, func(ctx context.Context, p *process) error {
			if !p.opened.Load() {
				return errRefused
			}
			return p.parts[part].part.SetLogStart(as(ctx, "deletes records"), start, replication.View{Epoch: replication.AnyEpoch})
		})
		c.w.s.trace.note(c.name, "log start of %d to %d: %v", part, start, err)
	}
}

// serveConsumer answers a consumer's fetch. What must come from the archive is
// waited for a while.
func (p *process) serveConsumer(ctx context.Context, index int32, at int64, view replication.View) (a fetched) {
	if !p.opened.Load() {
		return fetched{err: errRefused}
	}
	r := p.parts[index]
	for try := 0; ; try++ {
		res, err := r.part.Read(segment.ReadRequest{Offset: at, MaxBytes: 1500, Until: segment.UntilHighWatermark, MinOne: true}, view)
		a = fetched{offsets: res.Offsets, err: err, cold: at < res.Offsets.LocalStart}
		if err != nil {
			a.offsets = r.tiered.Offsets()
			return a
		}
		a.records = contents(&res.Records)
		if len(a.records) > 0 || res.Pending == nil || try == 5 {
			return a
		}
		wait := time.NewTimer(time.Second)
		select {
		case <-res.Pending:
			err = p.pause(ctx, fmt.Sprintf("cold read of %d-%d", index, at), 20*time.Microsecond)
		case <-wait.C:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		wait.Stop()
		if err != nil {
			return fetched{err: err}
		}
	}
}
