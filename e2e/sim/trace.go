package main

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// trace is what happened, in order, and a hash of it. Lines of the actors of one
// step are sorted by who wrote them: they ran at the same moment.
type trace struct {
	out  io.Writer // nil: the hash alone
	hash interface {
		io.Writer
		Sum64() uint64
	}
	now   time.Duration
	lines int
	mu    struct {
		sync.Mutex
		notes []traceNote
	}
}

type traceNote struct{ who, what string }

func newTrace(out io.Writer) *trace { return &trace{out: out, hash: fnv.New64a()} }

// step begins a step.
func (t *trace) step(now time.Duration, key string) {
	t.now = now
	t.line(key)
}

// note adds a line to the step that is under way.
func (t *trace) note(who, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.notes = append(t.mu.notes, traceNote{who, what})
}

// settle writes what the actors noted, when all of them wait again.
func (t *trace) settle() {
	t.mu.Lock()
	notes := t.mu.notes
	t.mu.notes = nil
	t.mu.Unlock()
	slices.SortStableFunc(notes, func(a, b traceNote) int {
		return cmp.Or(strings.Compare(a.who, b.who), strings.Compare(a.what, b.what))
	})
	for _, n := range notes {
		t.line("    " + n.who + ": " + n.what)
	}
}

func (t *trace) line(s string) {
	t.lines++
	line := fmt.Sprintf("%12.6f %s\n", t.now.Seconds(), s)
	_, _ = io.WriteString(t.hash, line) // never fails
	if t.out != nil {
		_, _ = io.WriteString(t.out, line) // a trace that can't be printed is the reader's loss
	}
}

// sum is the hash of everything so far.
func (t *trace) sum() uint64 { return t.hash.Sum64() }
