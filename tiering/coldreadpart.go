package tiering

import (
	"fmt"
	"sync"
	"time"
)

const (
	// coldIdle is when a reader that has not come back is forgotten.
	coldIdle = time.Minute
	// coldStreams bounds the readers of a partition that are remembered; the one
	// that has been away longest makes room.
	coldStreams = 64
)

// coldPartition is what is known of the readers of one partition, and of its
// objects that could not be read.
type coldPartition struct {
	c    *coldReads
	s    *source
	used time.Time // guarded by coldReads.mu

	mu      sync.Mutex
	streams []*coldStream // those that no read is using
	trouble map[string]*coldTrouble
}

// take takes the stream whose reader asks for offset next, or a new one. It is
// the caller's until put.
func (p *coldPartition) take(offset int64) *coldStream {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, st := range p.streams {
		if st.want == offset {
			p.streams[i] = p.streams[len(p.streams)-1]
			p.streams = p.streams[:len(p.streams)-1]
			return st
		}
	}
	return &coldStream{p: p, c: p.c, s: p.s, want: offset, next: offset, fresh: true, cs: p.c.cfg.Cache.NewStream()}
}

func (p *coldPartition) put(st *coldStream) {
	st.seen = time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.c.ctx.Err() != nil { // closed meanwhile
		st.cs.Close()
		return
	}
	p.streams = append(p.streams, st)
	if len(p.streams) <= coldStreams {
		return
	}
	oldest := 0
	for i, st := range p.streams {
		if st.seen.Before(p.streams[oldest].seen) {
			oldest = i
		}
	}
	p.streams[oldest].cs.Close()
	p.streams = append(p.streams[:oldest], p.streams[oldest+1:]...)
}

// expire forgets idle readers, and reports whether none is left.
func (p *coldPartition) expire(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	kept := p.streams[:0]
	for _, st := range p.streams {
		if now.Sub(st.seen) > coldIdle {
			st.cs.Close()
		} else {
			kept = append(kept, st)
		}
	}
	clear(p.streams[len(kept):])
	p.streams = kept
	for key, t := range p.trouble {
		if now.Sub(t.since) > coldIdle {
			delete(p.trouble, key)
		}
	}
	return len(kept) == 0
}

// coldTrouble is an object that is missing or damaged, and how far we are with
// finding out what that means.
type coldTrouble struct {
	since time.Time
	tries int
	// reload reads the pointer anew. Without that nobody knows whether the object
	// is still named, so that nothing counts as lost.
	reload *load
	wait   <-chan struct{} // until it pays to try again; nil once it is lost
	err    error           // lost
}

const (
	// A store may not show an object right after its PUT (D17): before it counts
	// as lost, the pointer is read anew and then the GET tried again so often,
	// with pauses from coldRetry on.
	coldRetries = 5
	coldRetry   = 200 * time.Millisecond
	// coldLostFor is how long a loss is told without looking again.
	coldLostFor = 10 * time.Second
)

// known is what is to be told of an object without trying to read it: wait, or
// the error of a lost one. Neither means: try.
func (p *coldPartition) known(key string) (<-chan struct{}, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.trouble[key]
	switch {
	case t == nil:
		return nil, nil
	case t.err != nil && time.Since(t.since) < coldLostFor:
		return nil, t.err
	case t.err != nil:
		delete(p.trouble, key)
		return nil, nil
	}
	select {
	case <-t.wait:
		return nil, nil
	default:
		return t.wait, nil
	}
}

// fine notes that an object could be read.
func (p *coldPartition) fine(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.trouble, key)
}

// missing notes that an object of m could not be read because of err. It returns
// what to wait for before trying again, or that it is lost (D24).
func (p *coldPartition) missing(m *Manifest, key string, from, below int64, err error) (<-chan struct{}, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.trouble[key]
	if t == nil {
		t = &coldTrouble{}
		p.trouble[key] = t
	}
	t.since = time.Now()
	if t.wait != nil && t.err == nil {
		select {
		case <-t.wait:
		default:
			return t.wait, nil // another reader was here first
		}
	}
	if t.reload != nil && t.reload.err != nil { // done, for wait is
		err := t.reload.err
		delete(p.trouble, key)
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	switch t.tries++; {
	case t.tries == 1:
		t.reload = p.s.reload(m)
		t.wait = t.reload.done
	case t.tries <= coldRetries:
		t.wait = p.c.after(coldRetry << (t.tries - 2))
	default:
		t.wait, t.err = nil, fmt.Errorf("%w: offsets [%d, %d) of %s: %w", ErrLost, from, below, p.s.Part, err)
		p.c.lost.Inc()
		p.c.cfg.Log.Error("archived segment can't be read: object is missing or damaged",
			"topic", p.s.Part.Topic, "partition", p.s.Part.Num, "key", key, "offset", from, "below", below, "err", err)
		return nil, t.err
	}
	return t.wait, nil
}
