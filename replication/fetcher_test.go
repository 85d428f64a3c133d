package replication

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"firn/replication/isr"
	"firn/replication/meta"
	"firn/segment"
	"firn/segment/vfs"
)

// pair is a leader's and a follower's replicas of some partitions.
type pair struct {
	t       testing.TB
	leaders []*Partition
	parts   []*Partition
	fetcher *Fetcher
	now     time.Time
	session bool // the leader keeps a session
	epoch   int32
	known   map[int32]FetchPartition
}

func newPair(t testing.TB, n int, o segment.Options) *pair {
	return newPairOn(t, n, o, func(int) vfs.FS { return vfs.NewMem() })
}

// newPairOn is newPair with the disk of each follower.
func newPairOn(t testing.TB, n int, o segment.Options, disk func(i int) vfs.FS) *pair {
	p := &pair{t: t, now: time.Unix(1000, 0), known: map[int32]FetchPartition{}}
	p.fetcher = NewFetcher(FetcherConfig{Self: other.ID, PartitionBytes: 1 << 20, AnswerBytes: 4 << 20, MinBytes: 1, MaxWait: 500 * time.Millisecond, Backoff: time.Second})
	for i := range n {
		s := led(me, 1, me, other)
		a := New(Config{Topic: "t", TopicID: meta.TopicID{1}, Index: int32(i), Log: openSegmentLog(t, o), Rules: isr.Rules{Replicas: 2}})
		b := New(Config{Topic: "t", TopicID: meta.TopicID{1}, Index: int32(i), Log: openSegmentLogOn(t, disk(i), o), Rules: isr.Rules{Replicas: 2}})
		for _, m := range []struct {
			p    *Partition
			self meta.Member
		}{{a, me}, {b, other}} {
			if err := m.p.Become(context.Background(), s, m.self); err != nil {
				t.Fatal(err)
			}
		}
		p.leaders, p.parts = append(p.leaders, a), append(p.parts, b)
		p.fetcher.Follow(b, 1)
	}
	return p
}

// fetch is the next thing that the follower asks for, which must be a Fetch.
func (p *pair) fetch() *FetchRequest {
	p.t.Helper()
	ask := p.fetcher.Next(p.now)
	if ask.Fetch == nil {
		p.t.Fatalf("not a fetch: %+v", ask)
	}
	return ask.Fetch
}

// answer answers r as the leaders' broker does.
func (p *pair) answer(r *FetchRequest) *FetchAnswer {
	p.t.Helper()
	a := &FetchAnswer{}
	switch {
	case r.SessionEpoch == 0:
		clear(p.known)
		p.epoch = 1
	case r.SessionEpoch != p.epoch:
		a.Err = ErrSession
		return a
	default:
		p.epoch++
	}
	if p.session {
		a.Session = 7
	}
	for _, want := range r.Partitions {
		p.known[want.Index] = want
	}
	for _, k := range r.Forgotten { // what is named is forgotten again, as in Kafka
		delete(p.known, k.Index)
	}
	for i, l := range p.leaders {
		want, ok := p.known[int32(i)]
		if !ok {
			continue
		}
		at := PartitionAnswer{TopicID: want.TopicID, Index: want.Index, Diverging: noEpochEnd}
		at.Diverging, _, at.Err = l.Fetched(ReplicaFetch{Member: other, Epoch: want.Epoch, Offset: want.Offset, LastEpoch: want.LastEpoch, Now: p.now})
		if at.Err == nil && at.Diverging.Epoch < 0 {
			res, err := l.Read(segment.ReadRequest{Offset: want.Offset, MaxBytes: int(want.MaxBytes), Until: segment.UntilCounted, MinOne: true}, View{Epoch: want.Epoch, Replica: true})
			if at.Err = err; err == nil {
				at.HighWatermark, at.LogStart = res.Offsets.HighWatermark, res.Offsets.LogStart
				at.Records = readAll(p.t, res)
			}
		}
		a.Partitions = append(a.Partitions, at)
	}
	return a
}

func (p *pair) append(i int) {
	p.t.Helper()
	if _, err := p.leaders[i].Append(textBatch(p.t, 1, "x"), AppendOptions{Epoch: AnyEpoch, Now: 1}); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pair) wantNamed(r *FetchRequest, named, forgotten int) {
	p.t.Helper()
	if len(r.Partitions) != named || len(r.Forgotten) != forgotten {
		p.t.Fatalf("the request names %d partitions and forgets %d, want %d and %d: %+v", len(r.Partitions), len(r.Forgotten), named, forgotten, r)
	}
}

func (p *pair) take(a *FetchAnswer) {
	p.fetcher.TakeFetch(context.Background(), a, p.now)
}

func TestFetcherNamesWhatItsSessionDoesNotKnow(t *testing.T) {
	p := newPair(t, 3, segment.Options{})
	p.session = true
	r := p.fetch()
	p.wantNamed(r, 3, 0)
	p.take(p.answer(r))
	r = p.fetch()
	p.wantNamed(r, 0, 0)
	p.append(1)
	p.take(p.answer(r))
	r = p.fetch() // its offset is another now
	p.wantNamed(r, 1, 0)
	p.take(p.answer(r))

	p.fetcher.Unfollow(p.parts[2])
	r = p.fetch()
	p.wantNamed(r, 0, 1)
	p.take(p.answer(r))
	p.fetcher.Follow(p.parts[2], 1)
	r = p.fetch()
	p.wantNamed(r, 1, 0)
	p.take(p.answer(r))

	p.epoch = 77 // the leader has lost the session
	r = p.fetch()
	p.take(p.answer(r))
	r = p.fetch()
	if r.SessionEpoch != 0 {
		t.Fatalf("session epoch %d after the session was lost", r.SessionEpoch)
	}
	p.wantNamed(r, 3, 0)

	p.fetcher.Unreachable(p.now) // the connection has ended: so has the session
	if ask := p.fetcher.Next(p.now); ask.Until.IsZero() {
		t.Fatalf("no pause after the source was unreachable: %+v", ask)
	}
	p.now = p.now.Add(time.Second)
	p.wantNamed(p.fetch(), 3, 0)
}

// One bad partition holds up nothing but itself, and less and less often asks.
func TestAnErrorHoldsBackItsPartitionAlone(t *testing.T) {
	p := newPair(t, 2, segment.Options{})
	p.session = true
	p.take(p.answer(p.fetch()))
	bad := errors.New("no")
	for i := range 20 {
		r := p.fetch()
		p.append(0)
		a := p.answer(r)
		if _, ok := p.known[1]; ok {
			for j := range a.Partitions {
				if a.Partitions[j].Index == 1 {
					a.Partitions[j].Err = bad
				}
			}
		}
		p.take(a)
		if got := p.parts[0].log.Offsets().End; got != int64(i+1) {
			t.Fatalf("round %d: the good one ends at %d", i, got)
		}
		p.now = p.now.Add(time.Millisecond)
	}
	if w := p.fetcher.parts[partitionKey{meta.TopicID{1}, 1}]; w.failures < 2 || w.failures > 4 {
		t.Fatalf("%d tries in 20 ms", w.failures)
	}
	p.now = p.now.Add(time.Second)
	p.fetch()
	if _, ok := p.known[1]; ok {
		t.Fatal("the session still has what is held back")
	}
}

// A session never forgets who is fetched: neither who was held back with all others,
// so that no request went out meanwhile, nor who was followed elsewhere in between.
func TestWhoIsFetchedIsInTheSession(t *testing.T) {
	p := newPair(t, 2, segment.Options{})
	p.session = true
	round := func() {
		t.Helper()
		p.append(0)
		p.append(1)
		for range 2 {
			p.take(p.answer(p.fetch()))
		}
		for i := range p.parts {
			if got, want := p.parts[i].log.Offsets().End, p.leaders[i].log.Offsets().End; got != want {
				t.Fatalf("partition %d ends at %d, its leader's at %d", i, got, want)
			}
		}
	}
	round()

	a := p.answer(p.fetch())
	a.Partitions = nil
	for i := range p.parts {
		a.Partitions = append(a.Partitions, PartitionAnswer{TopicID: meta.TopicID{1}, Index: int32(i), Err: ErrNotLeader})
	}
	p.take(a)
	if ask := p.fetcher.Next(p.now); ask.Fetch != nil || ask.Until.IsZero() {
		t.Fatalf("no pause after an error: %+v", ask)
	}
	p.now = p.now.Add(time.Second)
	round()

	p.fetcher.Unfollow(p.parts[1])
	p.fetcher.Follow(p.parts[1], 1)
	p.fetcher.parts[partitionKey{meta.TopicID{1}, 1}].phase = fetching // the source has told where its epoch ends
	round()
}

func TestABadBatchIsNeverAppended(t *testing.T) {
	p := newPair(t, 1, segment.Options{})
	for _, spoil := range []func([]byte) []byte{
		func(b []byte) []byte { b[len(b)-1] ^= 1; return b },        // a byte
		func(b []byte) []byte { b[16] = 1; return b },               // an old format
		func(b []byte) []byte { b[15] = 0; b[12] = 0xff; return b }, // an epoch below zero
		func(b []byte) []byte { return b[:len(b)-3] },               // cut off: not yet whole
	} {
		p.now = p.now.Add(2 * time.Second)
		for {
			if ask := p.fetcher.Next(p.now); ask.Fetch != nil {
				if len(p.leaders) == 1 && p.leaders[0].log.Offsets().End == 0 {
					p.append(0)
				}
				a := p.answer(ask.Fetch)
				a.Partitions[0].Records = spoil(a.Partitions[0].Records)
				p.take(a)
				break
			}
			p.fetcher.TakeEnds([]EpochAnswer{{Topic: "t", End: noEpochEnd}}, p.now)
		}
		if o := p.parts[0].log.Offsets(); o.End != 0 {
			t.Fatalf("appended: %+v", o)
		}
	}
	p.now = p.now.Add(2 * time.Second)
	p.take(p.answer(p.fetch()))
	if o := p.parts[0].log.Offsets(); o.End != 1 {
		t.Fatalf("the good one is not there: %+v", o)
	}
}

// What another leader has sent isn't taken, not even between the change of role
// and the fetcher's hearing of it (R2).
func TestNothingIsTakenFromAFormerLeader(t *testing.T) {
	p := newPair(t, 1, segment.Options{})
	r := p.fetch()
	p.append(0)
	a := p.answer(r)
	if err := p.parts[0].Become(context.Background(), led(other, 2, other), other); err != nil {
		t.Fatal(err)
	}
	p.take(a)
	if o := p.parts[0].log.Offsets(); o.End != 0 {
		t.Fatalf("a leader has taken records from another: %+v", o)
	}
	if _, _, err := p.parts[0].Truncate(1, segment.EpochEnd{Epoch: 0, End: 0}); !errors.Is(err, ErrNotFollowing) {
		t.Fatalf("Truncate as a leader: %v", err)
	}
	if err := p.parts[0].BeginAt(1, 5); !errors.Is(err, ErrNotFollowing) {
		t.Fatalf("BeginAt as a leader: %v", err)
	}
	if err := p.parts[0].Rebuild(context.Background(), 1); !errors.Is(err, ErrNotFollowing) {
		t.Fatalf("Rebuild as a leader: %v", err)
	}
}

// When a log has held up the others for so long that somebody else has them, what
// the answer says of them is done no more: it may be old by then.
func TestNothingIsTakenForWhomOthersFollow(t *testing.T) {
	p := newPair(t, 3, segment.Options{})
	var entered []int32
	p.fetcher.cfg.Enter = func(q *Partition) bool {
		entered = append(entered, q.Index())
		return len(entered) < 2
	}
	r := p.fetch()
	for i := range 3 {
		p.append(i)
	}
	p.take(p.answer(r))
	if !slices.Equal(entered, []int32{0, 1}) {
		t.Errorf("asked for %v", entered)
	}
	for i, want := range []int64{1, 0, 0} {
		if end := p.parts[i].log.Offsets().End; end != want {
			t.Errorf("log %d ends at %d, want %d", i, end, want)
		}
	}
}

// A rebuild waits for the archive, and a change of role doesn't wait for the rebuild.
func TestAChangeOfRoleEndsARebuild(t *testing.T) {
	l := &archivedLog{fakeLog: newFakeLog(), entered: make(chan struct{})}
	p := newPartition(t, l, isr.Rules{Replicas: 2}, led(other, 1, other))
	done := make(chan error)
	go func() { done <- p.Rebuild(context.Background(), 1) }()
	<-l.entered
	if err := p.Become(context.Background(), led(me, 2, me), me); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("Rebuild = %v", err)
	}
}

type archivedLog struct {
	*fakeLog
	entered chan struct{}
}

func (l *archivedLog) RestartAtArchivedEnd(ctx context.Context) error {
	close(l.entered)
	<-ctx.Done()
	return ctx.Err()
}

func TestFollowingDoesNotAllocate(t *testing.T) {
	p := newPair(t, 1, segment.Options{})
	p.session = true
	p.take(p.answer(p.fetch()))
	p.append(0)
	p.take(p.answer(p.fetch()))
	// The answers are made beforehand, each a batch that goes on where the last ended.
	const rounds = 200
	var answers []*FetchAnswer
	for range rounds {
		at := p.leaders[0].log.Offsets().End
		p.append(0)
		res, err := p.leaders[0].Read(segment.ReadRequest{Offset: at, MaxBytes: 1 << 20, Until: segment.UntilCounted}, View{Epoch: 1})
		if err != nil {
			t.Fatal(err)
		}
		answers = append(answers, &FetchAnswer{Session: 7, Partitions: []PartitionAnswer{{
			TopicID: meta.TopicID{1}, Diverging: noEpochEnd, HighWatermark: at, Records: readAll(t, res),
		}}})
	}
	i := 0
	n := testing.AllocsPerRun(rounds/2, func() {
		p.fetch()
		p.take(answers[i])
		i++
	})
	if end := p.parts[0].log.Offsets().End; end != int64(i)+1 {
		t.Fatalf("appended up to %d in %d rounds", end, i)
	}
	if n > 2 {
		t.Errorf("%v allocations a fetch", n)
	}
	t.Logf("%v allocations a fetch", n)
}

// KIP-595: a fetch that goes on from another history is told where to cut, and
// counts for nothing.
func TestAFetchFromAnotherHistoryCountsForNothing(t *testing.T) {
	l := openSegmentLog(t, segment.Options{})
	p := New(Config{Log: l, Rules: isr.Rules{Replicas: 2}})
	for _, epoch := range []int32{2, 5, 6} { // 2 has 0..2, 5 has 3..4, 6 none
		if err := p.Become(context.Background(), led(me, epoch, me, other), me); err != nil {
			t.Fatal(err)
		}
		for range map[int32]int{2: 3, 5: 2}[epoch] {
			if _, err := p.Append(textBatch(t, 1, "x"), AppendOptions{Epoch: AnyEpoch, Now: 1}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		last      int32
		offset    int64
		diverging segment.EpochEnd
		err       error
	}{
		{2, 4, segment.EpochEnd{Epoch: 2, End: 3}, nil}, // more of 2 than the leader
		{4, 4, segment.EpochEnd{Epoch: 2, End: 3}, nil}, // an epoch that the leader never saw
		{5, 6, segment.EpochEnd{Epoch: 5, End: 5}, nil},
		{1, 2, segment.EpochEnd{Epoch: 1, End: 0}, nil},
		{7, 5, noEpochEnd, segment.ErrOffsetOutOfRange}, // of the future
		{-1, 6, noEpochEnd, segment.ErrOffsetOutOfRange},
		{2, 3, noEpochEnd, nil},
		{5, 5, noEpochEnd, nil},
	} {
		got, _, err := p.Fetched(ReplicaFetch{Member: other, Epoch: 6, Offset: c.offset, LastEpoch: c.last})
		if got != c.diverging || !errors.Is(err, c.err) {
			t.Errorf("last epoch %d at %d: %+v, %v; want %+v, %v", c.last, c.offset, got, err, c.diverging, c.err)
		}
		if hw := l.Offsets().HighWatermark; c.diverging.Epoch >= 0 && hw != 0 {
			t.Errorf("last epoch %d at %d: the high watermark is %d", c.last, c.offset, hw)
		}
	}
	if hw := l.Offsets().HighWatermark; hw != 5 {
		t.Errorf("in the end the high watermark is %d", hw)
	}
}
