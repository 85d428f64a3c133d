package replication

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"firn/replication/isr"
	"firn/replication/meta"
	"firn/replication/scenariotest"
	"firn/segment"
	"firn/segment/batch"
)

// TestScenarios plays scenarios. What comes of a block is what its commands print,
// then the replicas, which go on until the next new. Logs are real ones in memory;
// the network is this test.
//
//	new       replicas=B,… min=N lag=MS
//	state     leader=B epoch=E isr=B,… eligible=B,… tell=B,…
//	                                 the metadata store has it, and tells (all)
//	append    B n=N acks=all         records, by B
//	fetch     B                      B asks its leader, until a fetch is answered
//	request   B                      B's request, and its leader's answer, which waits
//	deliver   B                      B gets it
//	lose      B                      B doesn't
//	propose   B                      what B asks the store for
//	done, refused, unknown B         what it hears of that; refused version: by its version
//	apply     B                      the store does it all the same
//	bounce    B                      B registers again, with its log
//	wipe      B                      the same, with an empty log
//	gone      B                      B is registered no more
//	drain     B                      B is about to go
//	tell      B                      B hears of the state as it is
//	replicas  B,…                    the assignment
//	rules     min=N
//	cut       B start=N              B's log start, as leader
//	wait      MS
//	same                             all logs agree below their high watermarks
//	latest    B                      what B answers to ListOffsets −1
//
// Members are written id/broker epoch in what comes out.
func TestScenarios(t *testing.T) {
	scenariotest.Play(t, func(t *testing.T) func([]scenariotest.Command) string { return newWorld(t).run })
}

// world is the replicas of one partition, on brokers of their own.
type world struct {
	t        testing.TB
	replicas []int32
	assigned []int32
	rules    isr.Rules
	lag      time.Duration
	brokers  map[int32]*broker
	regs     map[int32]meta.Registration
	state    meta.PartitionState
	lists    map[int32]bool // who gives the partition up
	draining map[int32]bool
	now      time.Time
	out      strings.Builder
}

type broker struct {
	id       int32
	log      *segment.Log
	part     *Partition
	fetcher  *Fetcher
	source   int32
	proposal Proposal
	ask      Ask
	answer   FetchAnswer
	ends     []EpochAnswer
	starts   []StartAnswer
}

func newWorld(t testing.TB) *world {
	return &world{t: t, brokers: map[int32]*broker{}, regs: map[int32]meta.Registration{}, lists: map[int32]bool{}, draining: map[int32]bool{}, now: time.Unix(1_000_000, 0)}
}

func (m *world) run(commands []scenariotest.Command) string {
	m.out.Reset()
	for _, c := range commands {
		m.do(c)
	}
	m.draw()
	return m.out.String()
}

func (m *world) printf(format string, args ...any) { fmt.Fprintf(&m.out, format, args...) }

func ids(s string) (out []int32) {
	for f := range strings.SplitSeq(s, ",") {
		if n, err := strconv.Atoi(f); err == nil {
			out = append(out, int32(n))
		}
	}
	return out
}

func (m *world) members(list []int32) (out []meta.Member) {
	for _, id := range list {
		out = append(out, m.regs[id].Member())
	}
	return out
}

func (m *world) do(c scenariotest.Command) {
	id := int32(0)
	if len(c.Args) > 0 {
		if n, err := strconv.Atoi(c.Args[0]); err == nil {
			id = int32(n)
		}
	}
	b := m.brokers[id]
	switch c.Name {
	case "new":
		*m = *newWorld(m.t)
		m.replicas = ids(c.Text("replicas"))
		m.assigned = m.replicas
		m.rules = isr.Rules{MinInsync: int(c.Number("min")), Replicas: len(m.replicas)}
		m.lag = time.Duration(c.Number("lag")) * time.Millisecond
		m.state = meta.NoState()
		for _, id := range m.replicas {
			m.regs[id] = meta.Registration{ID: id, Epoch: 1, ValidFrom: 1}
			m.brokers[id] = &broker{id: id, log: openLog(m.t)}
			m.revive(m.brokers[id])
		}
	case "state":
		s := meta.PartitionState{
			Leader: meta.NoLeader, LeaderEpoch: int32(c.Number("epoch")), Version: max(0, m.state.Version+1),
			ISR: m.members(ids(c.Text("isr"))), Eligible: m.members(ids(c.Text("eligible"))),
		}
		if l := c.Text("leader"); l != "" && l != "none" {
			s.Leader = m.regs[int32(c.Number("leader"))].Member()
		}
		m.state = s
		told := m.replicas
		if v, ok := c.Value("tell"); ok {
			told = ids(v)
		}
		for _, id := range told {
			m.tell(id)
		}
	case "list", "unlist":
		m.lists[id] = c.Name == "list"
	case "tell":
		m.tell(id)
	case "append":
		a, err := b.part.Append(textBatch(m.t, int(max(1, c.Number("n"))), fmt.Sprint(id)), AppendOptions{Epoch: AnyEpoch, All: c.Text("acks") == "all", Now: m.now.UnixMilli()})
		if err != nil {
			m.printf("append %d: %v\n", id, err)
			return
		}
		if c.Text("acks") == "all" {
			done, err := b.part.Acked(a)
			m.printf("append %d: %d to %d, acked %v %v\n", id, a.First, a.Last, done, err)
		}
	case "fetch":
		for range 10 {
			m.request(b)
			if b.ask.Fetch == nil && b.ask.Ends == nil && b.ask.Starts == nil {
				m.printf("fetch %d: nothing to ask\n", id)
				return
			}
			fetch := b.ask.Fetch != nil
			m.deliver(b)
			if fetch {
				return
			}
		}
		m.t.Errorf("fetch %d: no end", id)
	case "request":
		m.request(b)
	case "deliver":
		m.deliver(b)
	case "lose":
		b.fetcher.Unreachable(m.now)
	case "propose":
		var ok bool
		if b.proposal, ok = b.part.Propose(m.cluster()); !ok {
			m.printf("propose %d: nothing\n", id)
			return
		}
		s := b.proposal.State
		m.printf("propose %d: isr=%s eligible=%s over %d\n", id, names(s.ISR), names(s.Eligible), s.Version)
	case "done":
		m.apply(b)
		b.part.Settle(b.proposal, nil, m.now)
	case "apply":
		m.apply(b)
	case "unknown":
		b.part.Settle(b.proposal, context.DeadlineExceeded, m.now)
	case "refused":
		op := meta.Op{Path: "elsewhere"}
		if slices.Contains(c.Args, "version") {
			op.Path = meta.StatePath(b.part.topic, b.part.index)
		}
		b.part.Settle(b.proposal, &meta.Conflict{Op: op, Err: meta.ErrVersion}, m.now)
	case "bounce", "wipe":
		r := m.regs[id]
		r.Epoch++
		if c.Name == "wipe" {
			b.log = openLog(m.t)
			r.ValidFrom = r.Epoch
		}
		m.regs[id] = r
		m.revive(b)
		m.tell(id)
	case "gone":
		delete(m.regs, id)
	case "drain":
		m.draining[id] = true
	case "replicas":
		m.assigned = ids(c.Args[0])
	case "rules":
		m.rules.MinInsync = int(c.Number("min"))
		for _, b := range m.brokers {
			b.part.SetRules(m.rules)
		}
	case "cut":
		if err := b.part.SetLogStart(context.Background(), c.Number("start"), View{Epoch: AnyEpoch}); err != nil {
			m.printf("cut %d: %v\n", id, err)
		}
	case "wait":
		m.now = m.now.Add(time.Duration(id) * time.Millisecond)
	case "latest":
		at, err := b.part.Latest(View{Epoch: AnyEpoch}, segment.UntilHighWatermark)
		m.printf("latest %d: %d %v\n", id, at, err)
	case "same":
		m.same()
	default:
		m.t.Fatalf("no command %q", c.Name)
	}
}

func openLog(t testing.TB) *segment.Log { return openSegmentLog(t, segment.Options{}) }

// revive makes b's replica and its following anew, as a start does.
func (m *world) revive(b *broker) {
	b.part = New(Config{Topic: "t", TopicID: meta.TopicID{1}, Log: b.log, Rules: m.rules})
	b.fetcher = NewFetcher(FetcherConfig{Self: b.id, PartitionBytes: 1 << 20, AnswerBytes: 1 << 20, MinBytes: 1, MaxWait: 500 * time.Millisecond, Backoff: time.Second})
	b.source = 0
}

// tell has a broker take on the state as the store has it now.
func (m *world) tell(id int32) {
	b := m.brokers[id]
	r, ok := m.regs[id]
	if !ok {
		return
	}
	if err := b.part.Become(context.Background(), m.state, r.Member()); err != nil {
		m.printf("become %d: %v\n", id, err)
	}
	if leader, epoch, ok := b.part.Follows(); ok {
		if b.source != leader.ID {
			b.fetcher.Unfollow(b.part)
			b.fetcher.Interrupted()
			b.source = leader.ID
		}
		b.fetcher.Follow(b.part, epoch)
	} else {
		b.fetcher.Unfollow(b.part)
		b.source = 0
	}
}

func (m *world) cluster() Cluster {
	return Cluster{Now: m.now, MaxLag: m.lag, Registered: m.regs, Replicas: m.assigned,
		GivenUp: func(id int32) bool { return m.lists[id] }, Draining: func(id int32) bool { return m.draining[id] }}
}

// apply is the store's part in b's proposal.
func (m *world) apply(b *broker) {
	s := b.proposal.State
	if s.Version != m.state.Version {
		m.printf("the store refuses: its version is %d\n", m.state.Version)
		return
	}
	s.Version++
	m.state = s
}

// request carries b's next question to its leader, and keeps the answer.
func (m *world) request(b *broker) {
	b.ask = b.fetcher.Next(m.now)
	from := m.brokers[b.source]
	switch ask := &b.ask; {
	case ask.Fetch != nil:
		b.answer = FetchAnswer{}
		for _, p := range ask.Fetch.Partitions {
			b.answer.Partitions = append(b.answer.Partitions, m.serve(from, m.regs[b.id].Member(), p))
		}
	case ask.Ends != nil:
		b.ends = b.ends[:0]
		for _, q := range ask.Ends {
			a := EpochAnswer{Topic: q.Topic, Index: q.Index}
			var look Lookup
			if look, a.Err = from.part.Lookup(View{Epoch: q.CurrentEpoch, Replica: true}); a.Err == nil {
				a.End = look.EpochEnd(q.Epoch)
			}
			b.ends = append(b.ends, a)
		}
	case ask.Starts != nil:
		b.starts = b.starts[:0]
		for _, k := range ask.Starts {
			o, err := from.part.Offsets(View{Epoch: AnyEpoch, Replica: true})
			b.starts = append(b.starts, StartAnswer{Topic: k.Topic, Index: k.Index, Err: err, LogStart: o.LogStart})
		}
	}
}

func (m *world) deliver(b *broker) {
	switch ask := &b.ask; {
	case ask.Fetch != nil:
		b.fetcher.TakeFetch(context.Background(), &b.answer, m.now)
		for _, a := range b.answer.Partitions {
			if a.Err != nil {
				m.printf("fetch %d: %v\n", b.id, a.Err)
			}
		}
	case ask.Ends != nil:
		b.fetcher.TakeEnds(b.ends, m.now)
	case ask.Starts != nil:
		b.fetcher.TakeStarts(b.starts, m.now)
	}
	b.ask = Ask{}
}

// serve answers a replica's fetch, as a broker does.
func (m *world) serve(from *broker, who meta.Member, p FetchPartition) PartitionAnswer {
	a := PartitionAnswer{TopicID: p.TopicID, Index: p.Index}
	a.Diverging, _, a.Err = from.part.Fetched(ReplicaFetch{Member: who, Epoch: p.Epoch, Offset: p.Offset, LastEpoch: p.LastEpoch, Now: m.now})
	if a.Err != nil || a.Diverging.Epoch >= 0 {
		o := from.log.Offsets()
		a.HighWatermark, a.LogStart = o.HighWatermark, o.LogStart
		return a
	}
	r, err := from.part.Read(segment.ReadRequest{Offset: p.Offset, MaxBytes: int(p.MaxBytes), Until: segment.UntilCounted, MinOne: true}, View{Epoch: p.Epoch, Replica: true})
	if err != nil {
		a.Err = err
		return a
	}
	a.HighWatermark, a.LogStart = r.Offsets.HighWatermark, r.Offsets.LogStart
	a.Records = readAll(m.t, r)
	return a
}

func readAll(t testing.TB, r segment.ReadResult) []byte {
	t.Helper()
	defer r.Records.Release()
	b, err := r.Records.AppendTo(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// textBatch is one batch of n records.
func textBatch(t testing.TB, n int, value string) []byte {
	t.Helper()
	b := batch.NewBuilder(batch.Spec{})
	for range n {
		b.Add(1, nil, []byte(value))
	}
	out, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// same compares all logs with each other below the lower high watermark.
func (m *world) same() {
	for i, x := range m.replicas {
		for _, y := range m.replicas[:i] {
			a, b := m.brokers[x].log, m.brokers[y].log
			below := min(a.Offsets().HighWatermark, b.Offsets().HighWatermark)
			from := max(a.Offsets().LocalStart, b.Offsets().LocalStart)
			if !bytes.Equal(batchesBelow(m.t, a, from, below), batchesBelow(m.t, b, from, below)) {
				m.printf("%d and %d differ below %d\n", x, y, below)
			}
		}
	}
}

func batchesBelow(t testing.TB, l *segment.Log, from, below int64) (out []byte) {
	for at := from; at < below; {
		r, err := l.Read(segment.ReadRequest{Offset: at, MaxBytes: 1, Until: segment.UntilCounted, MinOne: true})
		if err != nil {
			t.Fatal(err)
		}
		b := readAll(t, r)
		bt, _, err := batch.Next(b)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b...)
		at = bt.NextOffset()
	}
	return out
}

func names(ms []meta.Member) string {
	var out []string
	for _, m := range ms {
		out = append(out, fmt.Sprintf("%d/%d", m.ID, m.Epoch))
	}
	return strings.Join(out, ",")
}

// draw shows each replica: its role, its log, its high watermark and its epochs.
func (m *world) draw() {
	for _, id := range slices.Sorted(slices.Values(m.replicas)) {
		b := m.brokers[id]
		leader, epoch, here := b.part.Leader()
		role := fmt.Sprintf("follows %d", leader.ID)
		if here {
			role = "leads"
		} else if leader.ID < 0 {
			role = "waits"
		}
		o := b.log.Offsets()
		m.printf("%d %s in %d: %d..%d hw=%d", id, role, epoch, o.LocalStart, o.End, o.HighWatermark)
		for _, e := range b.log.Epochs() {
			m.printf(" e%d@%d", e.Epoch, e.Start)
		}
		if here {
			if s := b.part.State(); s.Version >= 0 {
				m.printf(" isr=%s", names(s.ISR))
				if len(s.Eligible) > 0 {
					m.printf(" eligible=%s", names(s.Eligible))
				}
			}
		}
		m.printf("\n")
	}
}
