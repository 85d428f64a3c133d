package segment

import (
	"errors"
	"fmt"
	"slices"

	"firn/segment/batch"
	"firn/segment/vfs"
)

// Damage tells what of a quarantined log can't be read any more, though it was
// flushed (S5). Log.Err wraps it.
type Damage struct {
	// File is where it is, and Position the byte from which on nothing fits.
	File     string
	Position int64
	// From and Below are the offsets. More may be damaged after them.
	From, Below int64
	Reason      error
}

func (d *Damage) Error() string {
	return fmt.Sprintf("offsets %d to %d are damaged, at byte %d of %s: %v", d.From, d.Below-1, d.Position, d.File, d.Reason)
}

func (d *Damage) Unwrap() error { return d.Reason }

// damage describes where a scan has ended in s, of a log that went up to point.
func (r *recovery) damage(s *segment, point int64) *Damage {
	d := &Damage{File: s.path(logSuffix), Position: r.pos, From: r.next, Below: s.end, Reason: r.reason}
	if s.end == never {
		d.Below = max(point, r.next)
	}
	if d.Reason == nil {
		d.Reason = errors.New("the log ends here")
	}
	h, err := r.l.dir.handles.pin(s)
	if err != nil {
		return d
	}
	defer h.unpin()
	// The header may be whole: then it is known how far the damage goes at least.
	if b, err := header(h.file, r.pos, s.size); err == nil && b.BaseOffset() >= d.From && b.NextOffset() > b.BaseOffset() && b.NextOffset() <= d.Below {
		d.From, d.Below = b.BaseOffset(), b.NextOffset()
	}
	return d
}

// Quarantine ends the log because of what a reader of f has found in it, a sealed
// segment (S5): at byte pos it isn't what was written. It tells what Err does from
// now on; nil if the segment is no part of the log any more.
func (l *Log) Quarantine(f *SealedFile, pos int64, reason error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.st.mu.view.find(f.Info.Base)
	if s == nil || s.base != f.Info.Base || s == l.st.mu.view.active {
		return nil
	}
	if l.mu.closed || l.Err() != nil {
		return l.Err()
	}
	return l.failLocked(ErrQuarantined, &Damage{File: s.path(logSuffix), Position: pos, From: s.base, Below: s.end, Reason: reason})
}

// salvageable tells whether f holds a whole batch of offsets in [from, below)
// somewhere after pos, below size, though what lies at pos is none: a damaged
// length hides what follows it.
func salvageable(f vfs.File, pos, size, from, below int64) (bool, error) {
	buf := make([]byte, scanBuffer)
	var whole []byte
	for pos+batch.HeaderSize <= size {
		n := min(int64(len(buf)), size-pos)
		if err := readFull(f, buf[:n], pos); err != nil {
			return false, err
		}
		last := n - batch.HeaderSize
		for at := int64(0); at <= last; at++ {
			h := batch.Batch(buf[at : at+batch.HeaderSize])
			length, err := batch.Peek(h)
			if err != nil || h.BaseOffset() < from || h.BaseOffset() >= below || int64(length) > size-pos-at {
				continue
			}
			whole = slices.Grow(whole[:0], length)[:length]
			if err := readFull(f, whole, pos+at); err != nil {
				return false, err
			}
			if batch.Verify(whole) == nil {
				return true, nil
			}
		}
		pos += last + 1
	}
	return false, nil
}
