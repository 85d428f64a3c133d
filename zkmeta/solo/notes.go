package solo

import (
	"context"
	"sync"

	"firn/replication/meta"
)

// keepNotes is how many notes are kept for readers that are behind.
const keepNotes = 1000

// notes are the change notes of this session, numbered without a gap from first on.
type notes struct {
	mu      sync.Mutex
	last    int64 // number of the newest, or of the last before this session
	list    []meta.Note
	more    chan struct{} // closed when there is another, or never will be
	closed  bool
	waiting bool
}

func (n *notes) begin(last int64) { n.last, n.more = last, make(chan struct{}) }

func (n *notes) add(note meta.Note) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last++
	note.Number = n.last
	if len(n.list) == 2*keepNotes {
		n.list = append(n.list[:0:0], n.list[keepNotes:]...)
	}
	n.list = append(n.list, note)
	n.wakeLocked()
}

func (n *notes) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	n.wakeLocked()
}

func (n *notes) wakeLocked() {
	if n.waiting {
		close(n.more)
		n.more, n.waiting = make(chan struct{}), false
	}
}

// after returns the notes after number, waiting for one.
func (n *notes) after(ctx context.Context, number int64) ([]meta.Note, error) {
	for {
		n.mu.Lock()
		if n.closed {
			n.mu.Unlock()
			return nil, meta.ErrClosed
		}
		missing := n.last - number
		if number < 0 || missing < 0 || missing > int64(len(n.list)) {
			gap := &meta.ErrGap{Last: n.last}
			n.mu.Unlock()
			return nil, gap
		}
		if missing > 0 {
			// Shared, but never written again: add appends or copies.
			list := n.list[len(n.list)-int(missing):]
			n.mu.Unlock()
			return list[:len(list):len(list)], nil
		}
		n.waiting = true
		more := n.more
		n.mu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
