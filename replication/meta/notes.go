package meta

import (
	"context"
	"sync"
)

// keepNotes is how many notes a Notes keeps for readers that are behind.
const keepNotes = 1000

// Notes keeps the change notes of a store for readers in this process, numbered
// without a gap. The zero value begins after number 0.
type Notes struct {
	mu   sync.Mutex
	last int64 // number of the newest
	list []Note
	more chan struct{} // closed when there is another; nil while nobody waits
}

// NotesAfter begins after number last.
func NotesAfter(last int64) *Notes { return &Notes{last: last} }

// Add numbers a note and wakes who waits for it.
func (n *Notes) Add(note Note) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last++
	note.Number = n.last
	if len(n.list) == 2*keepNotes {
		n.list = append(n.list[:0:0], n.list[keepNotes:]...)
	}
	n.list = append(n.list, note)
	n.wake()
}

// Lose has everybody read everything: notes were missed.
func (n *Notes) Lose() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last++
	n.list = nil
	n.wake()
}

// Last is the number of the newest.
func (n *Notes) Last() int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.last
}

func (n *Notes) wake() {
	if n.more != nil {
		close(n.more)
		n.more = nil
	}
}

// Changes answers Store.Changes for a session that ends when lost is closed.
func (n *Notes) Changes(ctx context.Context, after int64, lost <-chan struct{}) ([]Note, error) {
	for {
		list, more, err := n.since(after)
		if list != nil || err != nil {
			return list, err
		}
		select {
		case <-more:
		case <-lost:
			return nil, ErrClosed
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// since returns the notes after a number, or what to wait for.
func (n *Notes) since(after int64) ([]Note, <-chan struct{}, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	missing := n.last - after
	switch {
	case after < 0 || missing < 0 || missing > int64(len(n.list)):
		return nil, nil, &ErrGap{Last: n.last}
	case missing > 0:
		// Shared, but never written again: Add appends, or copies.
		list := n.list[len(n.list)-int(missing):]
		return list[:len(list):len(list)], nil, nil
	}
	if n.more == nil {
		n.more = make(chan struct{})
	}
	return nil, n.more, nil
}
