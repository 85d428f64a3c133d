package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"firn/e2e/chaos/stand"
	"firn/e2e/chaos/workload"
	"firn/replication"
)

// options are what a run was asked for. They do not change while it lasts.
type options struct {
	Seed       uint64
	Duration   time.Duration
	Slice      time.Duration // 0: all at once
	Faults     []string
	Brokers    int
	ZooKeepers int
	MinIO      bool
	Partitions int32
	Kills      int      // instead of faults by plan
	Build      []string // for go build
	Set        []string // more settings of brokers
	Brief      bool     // a run too short to be valid
	Share      float64  // of what must happen for a run to be valid, 0 means 1
	Tempo      float64  // 1: a thousand records a second
}

// progress is how far a run has come, over all its slices.
type progress struct {
	Options options
	Session int           // slices begun
	Spent   time.Duration // of the duration
	Steps   int           // of the plan
	Broken  bool          // a slice did not end as it should: the history has a gap
	Counts  counts
}

// counts is what the clients counted.
type counts struct {
	Acked, Failed, Unknown   int64
	Read, ColdReads          int64
	LeaderChanges, Elections int64
	Commits                  int64
	ReadErrors, Corrupt      int64
	Deaths                   int // ends of processes that nobody asked for
	Starts                   int
	Uploads                  int // segments that the archive holds in the end
}

const topic = "log"

// run is one slice of a run.
type run struct {
	dir  string
	out  io.Writer
	p    progress
	tool tools

	stand *stand.Stand
	load  *workload.Load
	h     *workload.Histories
	clock workload.Clock
}

// tools is where things lie on this machine.
type tools struct{ root, cache string }

func (r *run) path(name string) string { return filepath.Join(r.dir, name) }

func (r *run) say(format string, args ...any) {
	fmt.Fprintf(r.out, "%8.1fs  %s\n", r.clock.Now().Seconds(), fmt.Sprintf(format, args...))
}

// save writes run.json.
func (r *run) save() error {
	b, err := json.MarshalIndent(r.p, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(r.path("run.json"), append(b, '\n'), 0o644)
}

// resume reads the run that lies in dir.
func resume(dir string) (progress, error) {
	var p progress
	b, err := os.ReadFile(filepath.Join(dir, "run.json"))
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(b, &p); err != nil {
		return p, err
	}
	if p.Broken {
		return p, fmt.Errorf("the run in %s was not stopped in order: its history has a gap; begin another", dir)
	}
	return p, nil
}

// restless makes brokers do all the time what they do now and then.
func restless() []string {
	return []string{
		"log.retention.check.interval.ms=300", "remote.log.manager.task.interval.ms=300", "archive.delete.grace.ms=1000",
		"archive.sweep.interval.ms=5000", "log.flush.offset.checkpoint.interval.ms=1000", "log.segment.delete.delay.ms=500",
		"archive.upload.max.interval.ms=2000", "replica.lag.time.max.ms=2000", "leader.imbalance.check.interval.seconds=3", "leader.imbalance.per.broker.percentage=0",
		"archive.upload.min.bytes=0", "archive.cache.disk.bytes=16777216",
	}
}

// slice runs until the slice's end, or the run's, and tells whether that was it.
func (r *run) slice(ctx context.Context) (done bool, err error) {
	o := &r.p.Options
	r.p.Session++
	r.p.Broken = true
	if err := r.save(); err != nil {
		return false, err
	}
	sctx, cancel := context.WithTimeout(ctx, 5*time.Minute) // it builds firn, too
	defer cancel()
	r.stand, err = stand.Open(sctx, stand.Config{
		Dir: r.dir, Root: r.tool.root, Cache: r.tool.cache, Build: o.Build,
		Brokers: o.Brokers, ZooKeepers: o.ZooKeepers, MinIO: o.MinIO, Set: append(restless(), o.Set...),
	})
	if err != nil {
		return false, err
	}
	defer r.stand.Close()
	if r.p.Session == 1 {
		if err := r.createTopic(sctx); err != nil {
			return false, err
		}
	}
	if r.h, err = workload.OpenHistories(r.path("history"), topic, o.Partitions); err != nil {
		return false, err
	}
	r.clock = workload.Clock{Begun: time.Now(), Spent: r.p.Spent}
	r.startLoad()
	until := o.Duration
	if o.Slice > 0 {
		until = min(until, r.p.Spent+o.Slice)
	}
	if o.Kills > 0 {
		done, err = r.killInTurn(ctx, until)
	} else {
		done, err = r.nemesis(ctx, until)
	}
	if err == nil {
		err = r.finish(ctx, done)
	}
	return done, errors.Join(err, r.save())
}

func (r *run) startLoad() {
	o := &r.p.Options
	c := workload.Config{
		Clock: r.clock, Seeds: r.stand.Seeds(), History: r.h, Session: r.p.Session, Seed: o.Seed,
		Idempotent: 4, Plain: 1, Weak: 1, Hot: 1, Cold: 2,
		Pause: time.Duration(40 * float64(time.Millisecond) / max(o.Tempo, 0.01)), Burst: 10, Bytes: 200,
	}
	r.load = workload.Start(c)
}

// createTopic makes segments so small that hundreds of them go to the archive,
// and keeps next to nothing on the disk.
func (r *run) createTopic(ctx context.Context) error {
	o := &r.p.Options
	cl, err := kgo.NewClient(kgo.SeedBrokers(r.stand.Seeds()...))
	if err != nil {
		return err
	}
	defer cl.Close()
	set := func(s string) *string { return &s }
	configs := map[string]*string{
		"segment.bytes": set("65536"), "local.retention.ms": set("2000"), "retention.ms": set("-1"), "remote.storage.enable": set("true"),
		"min.insync.replicas": set(strconv.Itoa(min(2, o.Brokers))),
	}
	resp, err := kadm.NewClient(cl).CreateTopic(ctx, o.Partitions, int16(min(3, o.Brokers)), configs, topic)
	if err != nil {
		return fmt.Errorf("create topic: %w", err)
	}
	return resp.Err
}

// nemesis does one fault of the plan after the other.
func (r *run) nemesis(ctx context.Context, until time.Duration) (done bool, err error) {
	o := &r.p.Options
	of, err := chosen(r.stand.Config, o.Faults)
	if err != nil {
		return false, err
	}
	steps := plan(o.Seed, of, o.Duration)
	for r.p.Steps < len(steps) {
		s := &steps[r.p.Steps]
		if r.clock.Now()+s.lasts+calmEnd > until {
			break
		}
		if err := r.calm(ctx, s.at); err != nil {
			return false, err
		}
		if err := r.suffer(ctx, s); err != nil {
			return false, err
		}
		r.p.Steps++
	}
	if err := r.wait(ctx, until-r.clock.Now()); err != nil {
		return false, err
	}
	return until == o.Duration, nil
}

// calm waits for the time of the next fault, and until the last one is mended:
// what is promised is promised of one fault at a time.
func (r *run) calm(ctx context.Context, until time.Duration) error {
	began := time.Now()
	hctx, cancel := context.WithTimeout(ctx, healTime)
	defer cancel()
	if err := inSync(hctx, r.stand.Seeds()); err != nil {
		return err
	}
	if took := time.Since(began); took > 5*time.Second {
		r.say("all in sync only %.1f s after it was healed", took.Seconds())
	}
	return r.wait(ctx, max(until-r.clock.Now(), shortestCalm))
}

// shortestPromise is how long a window with a promise is at least, healed or
// not: the time of a failover, and some in which writes go on.
const shortestPromise = 6 * time.Second

// healTime is how long anything may take to serve again.
const healTime = 60 * time.Second

// suffer does one fault.
func (r *run) suffer(ctx context.Context, s *step) error {
	v := &victims{Stand: r.stand, load: r.load, rng: rand.New(rand.NewPCG(s.seed, 1))}
	w := &window{From: r.clock.Now(), Promised: s.fault.promised, Name: s.fault.name}
	before := r.load.Acked.Load()
	heal, err := s.fault.do(v)
	if err != nil {
		return fmt.Errorf("%s: %w", s.fault.name, err)
	}
	if err := r.wait(ctx, s.lasts); err != nil {
		return err
	}
	hctx, cancel := context.WithTimeout(ctx, healTime)
	defer cancel()
	began := time.Now()
	if err := heal(hctx); err != nil {
		return fmt.Errorf("heal %s: %w", s.fault.name, err)
	}
	r.standUp(hctx)
	healed := time.Since(began)
	if w.Promised {
		if err := r.wait(ctx, shortestPromise-(r.clock.Now()-w.From)); err != nil {
			return err
		}
	}
	w.To, w.Hit = r.clock.Now(), fmt.Sprint(v.hit)
	r.mayLag(w)
	r.say("%-20s %-12v for %.1f s, healed in %.1f: %d acknowledged", w.Name, v.hit, s.lasts.Seconds(), healed.Seconds(), r.load.Acked.Load()-before)
	return appendWindow(r.path("windows.txt"), w)
}

// mayLag notes that a leader which ZooKeeper has taken for gone, and which doesn't
// know, answers from the past for the time of its lease: while it is cut off, and
// until it has found its way back.
func (r *run) mayLag(w *window) {
	if !strings.HasPrefix(w.Name, "zk-") {
		return
	}
	lease := replication.LeaseTimes(stand.SessionTimeout).Length
	for p := range r.h.Partitions {
		r.h.Of(p).Past(w.From, w.To+2*stand.SessionTimeout, lease)
	}
}

// standUp starts again what has ended by itself: brokers may fence themselves.
func (r *run) standUp(ctx context.Context) {
	for _, b := range r.stand.Brokers {
		if !b.Running() {
			r.say("%s has ended by itself", b.Name)
			if err := again(b)(ctx); err != nil {
				r.say("%v", err)
			}
		}
	}
}

func (r *run) wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// finish ends the clients, so that every write has an outcome; at the run's end
// it dumps all there is. The stand lies still afterwards.
func (r *run) finish(ctx context.Context, done bool) error {
	r.load.StopProducers()
	r.p.Spent = r.clock.Now()
	if done {
		if err := r.wait(ctx, 2*time.Second); err != nil { // readers catch up
			return err
		}
	}
	r.load.StopReaders()
	r.count()
	var err error
	if done {
		r.say("reading everything once more")
		fctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
		defer cancel()
		err = r.healed(fctx)
		if err == nil {
			err = dumpLog(fctx, r.stand.Seeds(), r.h, r.say)
		}
	}
	err = errors.Join(err, r.stand.StopBrokers(stopTime))
	if done && err == nil {
		for _, b := range r.stand.Brokers {
			err = errors.Join(err, dumpReplica(b, r.h))
		}
		segments, aerr := dumpArchive(ctx, r.stand.Archive(), r.h)
		r.say("%d segments in the archive", segments)
		r.p.Counts.Uploads = segments
		err = errors.Join(err, aerr)
	}
	if err = errors.Join(err, r.h.Close(), panics(r.stand)); err == nil {
		r.p.Broken = false
	}
	return err
}

// count adds what this slice's clients counted.
func (r *run) count() {
	c, l := &r.p.Counts, r.load
	c.Acked, c.Failed, c.Unknown = c.Acked+l.Acked.Load(), c.Failed+l.Failed.Load(), c.Unknown+l.Unknown.Load()
	c.Read, c.ColdReads = c.Read+l.Read.Load(), c.ColdReads+l.ColdReads.Load()
	c.LeaderChanges, c.Elections, c.Commits = c.LeaderChanges+l.LeaderChanges.Load(), c.Elections+l.Elections.Load(), c.Commits+l.Commits.Load()
	c.ReadErrors, c.Corrupt = c.ReadErrors+l.ReadErrors.Load(), c.Corrupt+l.Corrupt.Load()
	for _, b := range r.stand.Brokers {
		c.Deaths, c.Starts = c.Deaths+b.Deaths(), c.Starts+b.Starts()
	}
}

// healed waits until every partition has all its replicas in sync.
func (r *run) healed(ctx context.Context) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, healTime)
	defer cancel()
	if err := inSync(ctx, r.stand.Seeds()); err != nil {
		return err
	}
	r.say("all in sync %.1f s after the last fault", time.Since(began).Seconds())
	return nil
}

// inSync waits until all replicas of all partitions are in sync.
func inSync(ctx context.Context, seeds []string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		return err
	}
	defer cl.Close()
	for {
		m, err := kadm.NewClient(cl).Metadata(ctx)
		lacking := fmt.Sprint(err)
		if err == nil {
			lacking = ""
			for _, t := range m.Topics.Sorted() {
				for _, p := range t.Partitions.Sorted() {
					if p.Leader < 0 || len(p.ISR) < len(p.Replicas) {
						lacking += fmt.Sprintf(" %s-%d: leader %d, in sync %v of %v;", t.Topic, p.Partition, p.Leader, p.ISR, p.Replicas)
					}
				}
			}
			if lacking == "" && m.Topics.Has(topic) {
				return nil
			}
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("not all in sync: %w:%s", context.Cause(ctx), lacking)
		}
	}
}
