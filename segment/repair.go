package segment

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
)

// Repair is how a quarantined log is put back into service.
type Repair struct {
	// Archived is the offset below which the log is not needed: the archive has
	// it, or it is below the log start. Segments wholly below it go, unread; what
	// there is from it on must be undamaged, or it all stays as it is.
	Archived int64
	// LogStart, Chain and Producers are as in RestartAt: how the log starts again
	// at Archived if it holds nothing beyond it. Where it does, Chain has the
	// epochs below Archived, unless it is nil.
	LogStart  int64
	Chain     []EpochStart
	Producers []byte
	// Loss: somebody has accepted that damage from Archived on, and all that
	// follows it, is lost. It is cut off.
	Loss bool
}

// Repair puts a quarantined log back into service (S5): with the segments that
// end past how.Archived, when every batch of them has been verified. If one is
// damaged that was flushed, nothing has changed, and the error, as that of Err,
// wraps the Damage. A log that works is left alone.
func (l *Log) Repair(how Repair) error {
	if how.Archived < 0 || how.LogStart > how.Archived {
		return fmt.Errorf("%w: repair from %d with log start %d", ErrOffsetOutOfRange, how.Archived, how.LogStart)
	}
	l.files.Lock()
	defer l.files.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.closed {
		return ErrClosed
	}
	if err := l.Err(); !errors.Is(err, ErrQuarantined) {
		return err
	}
	chain, latest := l.chain.Load(), l.LatestEpoch()
	err := l.repairLocked(how, latest)
	found := (*Damage)(nil)
	switch {
	case err == nil:
		l.failure.Store(nil)
		l.dir.metrics.repaired.Inc()
		l.log.Warn("quarantined log repaired", "local_start", l.st.mu.LocalStart, "end", l.st.mu.End, "archived_end", how.Archived, "loss_accepted", how.Loss)
		l.wakeWaitersLocked()
		l.kickLocked()
		return nil
	case errors.As(err, &found):
		l.chain.Store(chain)
		err = fmt.Errorf("%w: %s: %w (what is archived or deleted ends at %d)", ErrQuarantined, l.tp, found, how.Archived)
		l.failure.Store(&err)
		return err
	}
	l.chain.Store(chain)
	return fmt.Errorf("segment: repair %s: %w", l.tp, err)
}

// repairLocked returns a *Damage for what keeps the log in quarantine. Until the
// last refusal it changes nothing on disk; then, in the order of recovery: the
// tail goes, what is archived goes, the oldest first. A crash in between leaves
// less of what was to go.
func (l *Log) repairLocked(how Repair, latest int32) error {
	old := l.st.mu.snapshot
	point := max(l.point.Load(), old.End) // what went up to there is missed
	if how.Loss {
		point = 0
	}
	kept, dropped := l.divide(old, how.Archived)
	if first := kept[0]; first.base > how.Archived {
		if how.Loss {
			return l.startAgainLocked(how)
		}
		return &Damage{File: first.path(logSuffix), From: how.Archived, Below: first.base, Reason: errGone}
	}
	r, i, err := l.verifyLocked(kept, how)
	if err != nil {
		return err
	}
	if r.next < point {
		// Nothing from Archived on was flushed, and no batch of it is to be seen?
		needed := point > how.Archived || i+1 < len(kept)
		if !needed {
			if needed, err = l.hides(kept[i], r.pos, how.Archived); err != nil {
				return err
			}
		}
		if needed {
			return r.damage(kept[i], point)
		}
	}
	if r.next < how.Archived || i == 0 && errors.Is(r.reason, errGone) {
		return l.startAgainLocked(how)
	}
	for errors.Is(r.reason, errGone) && i > 0 {
		i--
		r.pos, r.reason = kept[i].size, nil
	}
	if r.next < l.point.Load() { // a loss
		if err := l.lowerPoint(r.next); err != nil {
			return err
		}
	}
	cut, err := l.cutRecovered(kept, i, r.pos)
	if err != nil {
		return err
	}
	if cut > 0 {
		l.dir.metrics.cut.Add(float64(cut))
	}
	if _, err := l.dir.fs.Stat(filepath.Join(l.path, syncFailedFile)); err == nil {
		if err := l.rewrite(kept[:i+1], l.point.Load()); err != nil {
			return err
		}
	}
	chain := l.chain.Load().upTo(r.next)
	chain, _ = chain.with(latest, r.next)
	if err := l.writeEpochs(chain); err != nil {
		return err
	}
	l.chain.Store(&chain)
	l.mu.durableEpoch = chain.latest()

	l.takeRepairedLocked(kept[:i+1], r, how.Archived)
	return l.removeSegments(dropped)
}

// takeRepairedLocked puts segs, the last of them active and scanned by r, in the
// place of what the log had.
func (l *Log) takeRepairedLocked(segs []*segment, r *recovery, archived int64) {
	old := l.st.mu.snapshot
	for _, s := range old.sealed {
		l.dir.handles.drop(s)
	}
	l.dir.handles.drop(old.active)
	i := len(segs) - 1
	l.mu.unsynced = append([]*segment{}, segs[:i]...) // their index files may be damaged too
	l.mu.flushed = min(max(l.mu.flushed, l.point.Load()), r.next)
	l.mu.wanted = min(l.mu.wanted, r.next)
	l.warm.Store(true)

	l.st.mu.Lock()
	w := &l.st.mu.snapshot
	w.view, w.size = &view{sealed: segs[:i:i], active: segs[i]}, r.pos
	w.LocalStart, w.End = segs[0].base, r.next
	w.LogStart = min(w.LogStart, w.End)
	w.Counted = min(max(w.Counted, l.mu.flushed, w.LogStart), w.End)
	l.recountLocked()
	w.HighWatermark = min(max(w.HighWatermark, archived), w.Counted)
	l.st.mu.firstOpen = l.mu.producers.firstOpen()
	l.st.publishLocked()
	l.st.mu.Unlock()
}

// divide makes new segments of those that end past archived, of which nothing is
// known but where they are, and lists the others.
func (l *Log) divide(old snapshot, archived int64) (kept, dropped []*segment) {
	for _, s := range append(old.sealed[:len(old.sealed):len(old.sealed)], old.active) {
		if s != old.active && s.end <= archived {
			dropped = append(dropped, s)
			continue
		}
		fresh := l.newSegment(s.base)
		fresh.end, fresh.size, fresh.firstWall = s.end, s.size, s.firstWall
		if s == old.active {
			fresh.end, fresh.size = never, old.size
		}
		kept = append(kept, fresh)
	}
	return kept, dropped
}

// verifyLocked scans the segments from the first batch on, and makes their
// indexes, the producers' state and the epoch chain anew. It returns the segment
// in which it has ended.
func (l *Log) verifyLocked(kept []*segment, how Repair) (*recovery, int, error) {
	if how.Chain != nil {
		chain := epochs(how.Chain).below(how.Archived)
		for _, e := range *l.chain.Load() {
			if e.Start >= how.Archived {
				chain, _ = chain.with(e.Epoch, e.Start)
			}
		}
		l.chain.Store(&chain)
	}
	base := kept[0].base
	b, err := readFile(l.dir.fs, l.snapshotPath(base), smallFile)
	if err != nil {
		return nil, 0, err
	}
	p := &l.mu.producers
	p.reset()
	if b == nil || p.loadSnapshot(b) != nil {
		p.reset()
		if base == how.Archived && how.Producers != nil {
			err = p.loadSnapshot(how.Producers)
		} else if base > 0 {
			l.log.Warn("no snapshot of the producers: those that wrote nothing since are forgotten", "offset", base)
		}
	}
	if err != nil {
		return nil, 0, err
	}
	l.st.mu.Lock()
	l.st.mu.decided = nil
	l.st.mu.Unlock()
	r := &recovery{l: l, epoch: -1, next: base}
	i, err := r.run(kept, 0)
	l.dir.metrics.recovered.Add(float64(r.scanned))
	return r, i, err
}

// hides tells whether s holds batches of offsets from on after the damage at pos.
func (l *Log) hides(s *segment, pos, from int64) (bool, error) {
	h, err := l.dir.handles.pin(s)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer h.unpin()
	size, err := h.file.Size()
	if err != nil {
		return false, err
	}
	return salvageable(h.file, pos, min(size, s.size), from, s.base+math.MaxInt32)
}

// startAgainLocked is for a log that holds nothing that is needed.
func (l *Log) startAgainLocked(how Repair) error {
	var t producers
	t.reset()
	if how.Producers != nil {
		if err := t.loadSnapshot(how.Producers); err != nil {
			return err
		}
	}
	chain := epochs(how.Chain)
	if how.Chain == nil {
		chain = l.chain.Load().below(how.Archived)
	}
	return l.restartLocked(how.Archived, how.LogStart, chain, &t)
}
