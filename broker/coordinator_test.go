package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/broker/group"
	"firn/replication"
	"firn/replication/meta"
	"firn/segment"
	"firn/segment/batch"
)

// groupLog is a memLog that a coordinator can load: it reads whole batches and
// fails when told to.
type groupLog struct {
	*memLog
	err error
}

func (l *groupLog) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *groupLog) Append(b []byte, o segment.AppendOptions) (segment.Appended, error) {
	if err := l.Err(); err != nil {
		return segment.Appended{}, err
	}
	return l.memLog.Append(b, o)
}

func newGroupLog() *groupLog { return &groupLog{memLog: newMemLog()} }

// write appends records, as a coordinator does.
func (l *groupLog) write(t testing.TB, records ...group.Record) {
	t.Helper()
	b, err := groupBatches(records, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(b, segment.AppendOptions{}); err != nil {
		t.Fatal(err)
	}
}

// fail makes the log fail, as a write error does (S4).
func (l *groupLog) fail(err error) {
	l.mu.Lock()
	l.err = err
	l.mu.Unlock()
	l.onCounted()
}

// committed is the record of an offset that the group readers has committed.
func committed(n int64) group.Record {
	return group.OffsetRecord("readers", group.Partition{Topic: "events"}, group.Offset{Offset: n, Committed: time.Now()})
}

// testShard is a coordinator of one partition on log, loaded.
func testShard(t testing.TB, log replication.Log) (*coordinator, *shard) {
	t.Helper()
	c := &coordinator{now: time.Now, log: slog.New(slog.DiscardHandler), changed: &signal{}, lost: make(chan struct{}, 1), commitTimeout: 5 * time.Second}
	c.config = group.Config{MinSession: time.Second, MaxSession: time.Hour, MaxSize: 100, Retention: time.Hour, MaxMetadata: 100}
	c.timers.init(time.Now)
	c.mu.shards = map[int32]*shard{}
	p := lead(t, offsetsTopic, 0, log)
	x := &topicIndex{byName: map[string]*topic{}, byID: map[meta.TopicID]*topic{}}
	for _, name := range []string{offsetsTopic, "events"} {
		tp := &topic{Topic: meta.Topic{Name: name, ID: topicIDOf(name), Replicas: [][]int32{{0}}}}
		x.byName[name], x.byID[tp.ID] = tp, tp
	}
	x.byName[offsetsTopic].parts = []*replication.Partition{p}
	c.topics = func() *topicIndex { return x }
	c.follow(t.Context(), x)
	c.loading.Wait()
	return c, c.get(0)
}

func commitReq(offset int64) (*kmsg.OffsetCommitRequest, []commit) {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.Generation = 10, "readers", -1
	o := &group.Offset{Offset: offset, LeaderEpoch: -1, Committed: time.Now()}
	return req, []commit{{group.Partition{Topic: "events"}, o}}
}

// commitOffset commits an offset of the group readers.
func commitOffset(ctx context.Context, c *coordinator, offset int64) error {
	req, commits := commitReq(offset)
	return c.commit(ctx, req, commits)
}

// beginCommit does so without waiting for the outcome.
func beginCommit(t *testing.T, c *coordinator, offset int64) <-chan error {
	done := make(chan error, 1)
	go func() { done <- commitOffset(t.Context(), c, offset) }()
	synctest.Wait()
	return done
}

func (s *shard) offsetOf(groupID string) int64 {
	if s.enter() != nil {
		return -2
	}
	defer s.mu.Unlock()
	if h := s.mu.groups[groupID]; h != nil {
		if o, ok := h.Offset(group.Partition{Topic: "events"}); ok {
			return o.Offset
		}
	}
	return -1
}

// F2: an offset is seen, and its commit answered, once it is committed in the log.
func TestCommitIsSeenOnceItIsCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newGroupLog()
		c, s := testShard(t, log)
		log.hold = true
		done := beginCommit(t, c, 7)
		if got := s.offsetOf("readers"); got != -1 {
			t.Errorf("before the flush the offset is %d", got)
		}
		select {
		case err := <-done:
			t.Fatalf("answered before the flush: %v", err)
		default:
		}
		log.flush()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if got := s.offsetOf("readers"); got != 7 {
			t.Errorf("after the flush the offset is %d", got)
		}
	})
}

// What isn't committed in time is answered as failed; it may count all the same.
func TestCommitTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newGroupLog()
		c, s := testShard(t, log)
		log.hold = true
		began := time.Now()
		if err := commitOffset(t.Context(), c, 7); !errors.Is(err, kerr.CoordinatorNotAvailable) {
			t.Errorf("commit: %v", err)
		}
		if d := time.Since(began); d != 5*time.Second {
			t.Errorf("after %v", d)
		}
		log.flush()
		if got := s.offsetOf("readers"); got != 7 {
			t.Errorf("offset %d", got)
		}
	})
}

// A commit that is under way when its group is deleted goes with it.
func TestDeletionTakesCommitsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newGroupLog()
		c, s := testShard(t, log)
		log.hold = true
		done := beginCommit(t, c, 7)
		deleted := make(chan error, 1)
		go func() { deleted <- c.deleteGroup(t.Context(), "readers") }()
		synctest.Wait()
		log.flush()
		if err := errors.Join(<-done, <-deleted); err != nil {
			t.Error(err)
		}
		if groups, _, err := s.read(t.Context()); err != nil || len(groups) != 0 {
			t.Errorf("loaded again: %v, %v", groups, err)
		}
	})
}

// joinAlone makes a group of one member that owes its sync.
func joinAlone(t *testing.T, c *coordinator, s *shard) (member string) {
	t.Helper()
	done := make(chan *kmsg.JoinGroupResponse, 1)
	go func() {
		resp, _ := c.join(t.Context(), joinReq(3, "readers", ""), "c", "h")
		done <- resp
	}()
	synctest.Wait()
	groups, _ := c.timers.due()
	for _, h := range groups {
		s.tick(h)
	}
	resp := <-done
	if resp == nil || resp.ErrorCode != 0 {
		t.Fatalf("join: %+v", resp)
	}
	return resp.MemberID
}

func syncReq(member string, generation int32) *kmsg.SyncGroupRequest {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Version, req.Group, req.MemberID, req.Generation = 3, "readers", member, generation
	a := kmsg.NewSyncGroupRequestGroupAssignment()
	a.MemberID, a.MemberAssignment = member, []byte("all")
	req.GroupAssignment = append(req.GroupAssignment, a)
	return req
}

func TestAssignmentIsHandedOutOnceItIsCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newGroupLog()
		c, s := testShard(t, log)
		member := joinAlone(t, c, s)
		log.hold = true
		done := make(chan *kmsg.SyncGroupResponse, 1)
		go func() {
			resp, err := c.sync(t.Context(), syncReq(member, 1))
			if err != nil {
				t.Error(err)
			}
			done <- resp
		}()
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("handed out before the flush")
		default:
		}
		log.flush()
		if resp := <-done; resp.ErrorCode != 0 || string(resp.MemberAssignment) != "all" {
			t.Errorf("sync: %+v", resp)
		}
	})
}

func TestAssignmentThatIsNotCommittedInTimeFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newGroupLog()
		c, s := testShard(t, log)
		member := joinAlone(t, c, s)
		log.hold = true
		resp, err := c.sync(t.Context(), syncReq(member, 1))
		if err != nil || resp.ErrorCode != kerr.CoordinatorNotAvailable.Code {
			t.Errorf("sync: %+v, %v", resp, err)
		}
		if d, err := c.describe(t.Context(), "readers"); err != nil || d.State != "PreparingRebalance" {
			t.Errorf("group: %+v, %v", d, err)
		}
		log.flush()
	})
}

// Who waits when the leadership ends is sent to look for the coordinator (F6),
// and a new leadership begins with what is in the log.
func TestLostLeadershipEndsTheShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newGroupLog()
		c, s := testShard(t, log)
		if err := commitOffset(t.Context(), c, 7); err != nil {
			t.Fatal(err)
		}
		joined := make(chan int16, 1)
		go func() {
			resp, err := c.join(t.Context(), joinReq(3, "readers", ""), "c", "h")
			if err != nil {
				t.Error(err)
			}
			joined <- resp.ErrorCode
		}()
		synctest.Wait()
		st := meta.PartitionState{Leader: meta.Member{ID: 0, Epoch: 1}, LeaderEpoch: 6, ISR: []meta.Member{{ID: 0, Epoch: 1}}, ControllerEpoch: 1}
		if err := s.part.Become(t.Context(), st, st.Leader); err != nil {
			t.Fatal(err)
		}
		if err := s.enter(); !errors.Is(err, kerr.NotCoordinator) {
			t.Errorf("a shard of an old epoch answers %v", err)
		}
		c.follow(t.Context(), c.topics())
		if code := <-joined; code != kerr.NotCoordinator.Code {
			t.Errorf("join: code %d", code)
		}
		next, err := c.shard(t.Context(), "readers")
		if err != nil || next == s || next.epoch != 6 {
			t.Fatalf("shard: %+v, %v", next, err)
		}
		if got := next.offsetOf("readers"); got != 7 {
			t.Errorf("offset %d", got)
		}
	})
}

// A log that fails ends the shard; the groups are told, and begin anew when the
// log is back.
func TestFailedLogEndsTheShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newGroupLog()
		c, s := testShard(t, log)
		log.hold = true
		done := beginCommit(t, c, 7)
		log.fail(segment.ErrFailed)
		if err := <-done; !errors.Is(err, kerr.NotCoordinator) {
			t.Errorf("commit: %v", err)
		}
		s.settle()
		if !s.gone() {
			t.Error("the shard goes on with a log that failed")
		}
		select {
		case <-c.lost:
		default:
			t.Error("nobody is asked to look")
		}
		log.fail(nil)
		log.flush()
		c.follow(t.Context(), c.topics())
		next, err := c.shard(t.Context(), "readers")
		if err != nil {
			t.Fatal(err)
		}
		if got := next.offsetOf("readers"); got != 7 {
			t.Errorf("offset %d: it was in the log after all", got)
		}
	})
}

// E12: gaps, batches without records, records that are no groups', and damage in
// a record end no load.
func TestLoadIsTolerant(t *testing.T) {
	log := newGroupLog()
	log.write(t, committed(1), group.Record{Key: []byte{0, 3, 1}, Value: []byte("another kind")}, group.Record{Key: []byte("x")}, group.Record{})
	log.write(t, committed(2))
	log.o.End += 5 // compaction took the last records of a segment
	log.o.Counted += 5
	log.write(t, group.OffsetTombstone("never", "heard", 3), committed(3))
	log.o.End += 5 // and the last records of all
	log.o.Counted = log.o.End
	_, s := testShard(t, log)
	if got := s.offsetOf("readers"); got != 3 {
		t.Errorf("offset %d, want 3", got)
	}
}

// A commit of many partitions is more than one batch holds.
func TestManyRecordsAreSplit(t *testing.T) {
	log := newGroupLog()
	c, s := testShard(t, log)
	req, _ := commitReq(0)
	var commits []commit
	for i := range int32(10_000) {
		o := &group.Offset{Offset: int64(i), Metadata: strings.Repeat("m", 100), Committed: time.Now()}
		commits = append(commits, commit{group.Partition{Topic: "events", Num: i}, o})
	}
	if err := c.commit(t.Context(), req, commits); err != nil {
		t.Fatal(err)
	}
	if len(log.batches) < 5 {
		t.Errorf("%d batches", len(log.batches))
	}
	n := 0
	for _, b := range log.batches {
		if len(b) > groupBatchBytes+1024 {
			t.Errorf("a batch of %d bytes", len(b))
		}
		if err := batch.Verify(batch.Batch(b)); err != nil {
			t.Error(err)
		}
		n += int(batch.Batch(b).Count())
	}
	if n != 10_000 {
		t.Errorf("%d records", n)
	}
	groups, read, err := s.read(t.Context())
	if err != nil || read != 10_000 || len(groups) != 1 {
		t.Errorf("read back %d records, %d groups, %v", read, len(groups), err)
	}
}

// A read that fails is tried again as long as there is a reason to.
func TestLoadIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newGroupLog()
		log.write(t, committed(3))
		log.readErr = io.ErrUnexpectedEOF
		p := lead(t, offsetsTopic, 0, log)
		c := &coordinator{now: time.Now, log: slog.New(slog.DiscardHandler), changed: &signal{}}
		c.timers.init(time.Now)
		s := newShard(c, p, 0, 5)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { s.load(ctx); close(done) }()
		synctest.Wait()
		if err := s.enter(); !errors.Is(err, kerr.CoordinatorLoadInProgress) {
			t.Errorf("while it loads: %v", err)
		}
		log.mu.Lock()
		log.readErr = nil
		log.mu.Unlock()
		<-s.ready
		if got := s.offsetOf("readers"); got != 3 {
			t.Errorf("offset %d", got)
		}
		<-done
		cancel()
	})
}

// One goroutine wakes all groups, each in its time.
func TestTimersWakeGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newGroupLog()
		c, _ := testShard(t, log)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { c.timers.run(ctx); close(done) }()
		c.config.InitialDelay = 3 * time.Second
		answers := make(chan string, 3)
		for i := range 3 {
			go func() {
				began := time.Now()
				resp, err := c.join(ctx, joinReq(3, fmt.Sprint("g", i), ""), "c", "h")
				if err != nil {
					t.Error(err)
					return
				}
				answers <- fmt.Sprint(time.Since(began), " ", resp.Generation)
			}()
		}
		for range 3 {
			if got := <-answers; got != "3s 1" {
				t.Errorf("joined after %s, want 3s 1", got)
			}
		}
		// Nobody syncs or sends a heartbeat: within session and rebalance timeout
		// all are out.
		time.Sleep(time.Duration(waitMillis+1) * time.Millisecond)
		synctest.Wait()
		for i := range 3 {
			if d, err := c.describe(ctx, fmt.Sprint("g", i)); err != nil || d.State != "Empty" {
				t.Errorf("g%d is %s, want Empty, %v", i, d.State, err)
			}
		}
		cancel()
		<-done
	})
}

// A coordinator that takes over a million offsets (E12: within 10 s).
func BenchmarkLoad(b *testing.B) {
	const n = 1_000_000
	log := newGroupLog()
	records := make([]group.Record, 0, n)
	for i := range n {
		p := group.Partition{Topic: "events", Num: int32(i % 1000)}
		records = append(records, group.OffsetRecord(fmt.Sprint("g", i/1000), p, group.Offset{Offset: int64(i), Committed: time.Now(), TopicID: [16]byte{1}}))
	}
	log.write(b, records...)
	_, s := testShard(b, log)
	b.ReportAllocs()
	for b.Loop() {
		groups, read, err := s.read(b.Context())
		if err != nil || read != n || len(groups) != n/1000 {
			b.Fatalf("%d records, %d groups, %v", read, len(groups), err)
		}
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}
