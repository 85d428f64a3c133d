package meta

import (
	"context"
	"errors"
	"slices"
)

// Write is what must happen together: the checks without which it must not
// happen, the changes, and the note that tells of them. The functions that make
// Writes know which checks the invariants ask for; the writer adds its own fence
// with With.
type Write struct {
	Checks []Op
	Ops    []Op
	Note   Note
}

// With is w under further checks: the writer's fence.
func (w Write) With(checks ...Op) Write {
	w.Checks = append(checks[:len(checks):len(checks)], w.Checks...)
	return w
}

// Commit commits w alone.
func (w Write) Commit(ctx context.Context, s Store) error {
	return CommitAll(ctx, s, []Write{w})[0]
}

// CommitAll commits each write on its own account, in order, as many in one
// Commit as its limits allow, and tells how each went: nil, the *Conflict that
// refused it, or an error that leaves its outcome unknown, after which nothing
// more is tried. A write that is refused is set aside, and the others of its
// commit are sent again (Z2); so each must be right without the others.
func CommitAll(ctx context.Context, s Store, writes []Write) []error {
	errs := make([]error, len(writes))
	todo := make([]int, len(writes))
	for i := range todo {
		todo[i] = i
	}
	for len(todo) > 0 {
		b := newBatch()
		n := 0
		for n < len(todo) && b.add(&writes[todo[n]]) {
			n++
		}
		if n == 0 {
			errs[todo[0]] = ErrTooLarge
			todo = todo[1:]
			continue
		}
		err := s.Commit(ctx, b.commit()...)
		var refused *Conflict
		switch {
		case err == nil:
			todo = todo[n:]
		case errors.As(err, &refused):
			var again []int
			for i, w := range todo[:n] {
				if b.involves(i, refused.Index) {
					errs[w] = refused
				} else {
					again = append(again, w)
				}
			}
			if len(again) == n { // a note, or an index that isn't ours: nothing to set aside
				for _, w := range todo {
					errs[w] = err
				}
				return errs
			}
			todo = append(again, todo[n:]...)
		default:
			for _, w := range todo {
				errs[w] = err
			}
			return errs
		}
	}
	return errs
}

// batch is several writes in one commit: checks first, each once.
type batch struct {
	checks []Op
	at     map[checkKey]int // where a check stands
	uses   [][]int          // of each write, the checks that it shares
	ops    []Op
	owner  []int // of each of ops
	note   Note
	topics map[string]bool
	bytes  int
}

// checkKey tells checks apart.
type checkKey struct {
	path    string
	version int32
}

func newBatch() *batch {
	return &batch{at: make(map[checkKey]int), topics: make(map[string]bool), bytes: len(`{"topics":[],"partitions":{},"configs":[],"brokers":true,"elections":true}`)}
}

// add takes w in, if it fits.
func (b *batch) add(w *Write) bool {
	n, bytes := len(b.checks)+len(b.ops)+len(w.Ops)+1, b.bytes
	for _, c := range w.Checks {
		if _, ok := b.at[checkKey{c.Path, c.Version}]; !ok {
			n++
			bytes += len(c.Path)
		}
	}
	for _, o := range w.Ops {
		bytes += len(o.Path) + len(o.Value)
	}
	bytes += b.noteBytes(w.Note)
	if n > MaxOps || bytes > MaxBytes {
		return false
	}
	b.bytes = bytes
	me := len(b.uses)
	uses := make([]int, 0, len(w.Checks))
	for _, c := range w.Checks {
		key := checkKey{c.Path, c.Version}
		i, ok := b.at[key]
		if !ok {
			i = len(b.checks)
			b.checks = append(b.checks, c)
			b.at[key] = i
		}
		uses = append(uses, i)
	}
	b.uses = append(b.uses, uses)
	for _, o := range w.Ops {
		b.ops = append(b.ops, o)
		b.owner = append(b.owner, me)
	}
	for _, tp := range w.Note.Partitions {
		b.topics[tp.Topic] = true
	}
	b.note.merge(w.Note)
	return true
}

// noteBytes is at least what n adds to the note.
func (b *batch) noteBytes(n Note) int {
	bytes := 0
	for _, t := range n.Topics {
		bytes += len(t) + 3
	}
	for _, c := range n.Configs {
		bytes += len(c) + 3
	}
	last := ""
	for _, tp := range n.Partitions {
		bytes += 11 // a number and a comma
		if tp.Topic != last && !b.topics[tp.Topic] {
			bytes += len(tp.Topic) + 6
		}
		last = tp.Topic
	}
	return bytes
}

func (b *batch) commit() []Op {
	ops := append(b.checks[:len(b.checks):len(b.checks)], b.ops...)
	if !b.note.IsZero() {
		ops = append(ops, Op{Kind: Announce, Value: b.note.Encode()})
	}
	return ops
}

// involves: the i-th write of the batch has to do with operation op of its commit.
func (b *batch) involves(i, op int) bool {
	if op >= len(b.checks) {
		op -= len(b.checks)
		return op < len(b.owner) && b.owner[op] == i
	}
	return slices.Contains(b.uses[i], op)
}
