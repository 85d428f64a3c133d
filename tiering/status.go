package tiering

import (
	"errors"
	"fmt"
	"time"

	"firn/tiering/objstore"
)

// Status is where a partition's archive stands.
type Status struct {
	Partition Partition
	Leading   bool
	Copies    bool // remote.storage.enable, and not remote.log.copy.disable
	LogStart, LocalStart,
	ArchivedEnd, // -1: nothing is archived
	End int64
	// Segments and Bytes are of what is archived and served; -1 while the
	// manifest isn't in memory.
	Segments, Bytes int64
	LocalBytes      int64
	// Pending is what is not archived yet.
	PendingBytes int64
	// PendingAge is how long ago the oldest record that isn't archived was
	// appended, by the broker's clock since it was opened; 0 if there is none.
	PendingAge time.Duration
	// Reason says why nothing is going up right now, "" if something is.
	Reason string
	// LastError is what the leader's last attempt failed of; nil after one that didn't.
	LastError error
}

// note keeps what the last step has come to, for as long as the leadership lasts.
func (ld *leadership) note(reason string, err error, now time.Time, jitter float64) {
	ld.mu.Lock()
	defer ld.mu.Unlock()
	ld.mu.reason, ld.mu.lastErr = reason, err
	if err == nil {
		ld.mu.failures, ld.mu.retryAt = 0, time.Time{}
		return
	}
	ld.mu.failures++
	ld.mu.retryAt = now.Add(backoff(ld.mu.failures, jitter))
}

// backoff is 0.5 s, 1 s, … 30 s, as Kafka's remote log manager has it, less up
// to a fifth.
func backoff(failures int, jitter float64) time.Duration {
	d := 30 * time.Second
	if failures < 7 {
		d = min(d, 500*time.Millisecond<<(failures-1))
	}
	return d - time.Duration(0.2*jitter*float64(d))
}

// silentAfter is how long a store may owe an answer before that is told; the
// request itself has longer.
const silentAfter = 8 * time.Second

var errSilent = errors.New("the store doesn't answer")

// Silent is an error that says for how long the store has owed an answer, if that
// is too long.
func (a *Archive) Silent() error {
	if d := objstore.Silence(a.store); d >= silentAfter {
		return fmt.Errorf("%w: a request has waited for %d s", errSilent, int(d.Seconds()))
	}
	return nil
}

// Status tells where the partition stands.
func (l *Log) Status(now time.Time) Status { return l.status(now, l.a.Silent()) }

func (l *Log) status(now time.Time, silent error) Status {
	o := l.Offsets()
	v := l.view.Load()
	s := Status{
		Partition: l.part, Copies: l.policy.Load().copies(), LogStart: o.LogStart, LocalStart: o.LocalStart, ArchivedEnd: o.ArchivedEnd, End: o.End,
		Segments: -1, Bytes: -1, LocalBytes: l.local.Size(),
	}
	if !v.ptr.Exists() {
		s.Segments, s.Bytes = 0, 0
	} else if m := v.manifest; m != nil {
		s.Segments, s.Bytes = m.served()
	}
	active := l.local.ActiveInfo()
	s.PendingBytes = active.Bytes
	oldest := active.Base
	sealed, _ := l.local.Sealed(max(o.ArchivedEnd, o.LogStart)) // of a failed log: nothing to tell
	for i := range sealed {
		s.PendingBytes += sealed[i].Size
	}
	if len(sealed) > 0 {
		oldest = sealed[0].Base
	}
	if s.PendingBytes > 0 {
		s.PendingAge = max(0, l.age(l.began.of(oldest), now))
	}
	ld := l.lead.Load()
	s.Leading = ld != nil
	if ld == nil {
		s.Reason = l.whyNotLeading()
		return s
	}
	ld.mu.Lock()
	defer ld.mu.Unlock()
	s.Reason, s.LastError = ld.mu.reason, ld.mu.lastErr
	switch {
	case s.Reason == reasonActive && active.Bytes > 0 && s.LastError == nil && silent == nil:
		s.Reason = l.policy.Load().waits(active.Bytes)
	case silent != nil && len(l.step) > 0: // a step is under way: what the last one came to is old
		s.Reason, s.LastError = silent.Error(), silent
	case s.LastError != nil:
		s.Reason = s.LastError.Error()
	}
	return s
}

func (l *Log) whyNotLeading() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.mu.diverged:
		return "local log and archive have different histories"
	case l.mu.behind:
		return "local log ends below the archived end, and the archive can't be read"
	}
	return reasonNotLeading
}

// served counts what m serves: entries and bytes past the log start. Of a page
// that the log start lies in it counts all.
func (m *Manifest) served() (segments, bytes int64) {
	for i := range m.Pages {
		if p := &m.Pages[i]; p.End > m.LogStart {
			segments, bytes = segments+int64(p.Count), bytes+p.Bytes
		}
	}
	for i := range m.Entries {
		if e := &m.Entries[i]; e.End > m.LogStart {
			segments, bytes = segments+1, bytes+e.Size
		}
	}
	return segments, bytes
}

// Status tells where every open partition stands, in order.
func (a *Archive) Status() []Status {
	now, silent := a.cfg.Now(), a.Silent()
	logs := a.logs()
	list := make([]Status, len(logs))
	for i, l := range logs {
		list[i] = l.status(now, silent)
	}
	return list
}
