package metatest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"firn/replication/meta"
)

// Harness gives a test one store, empty at first.
type Harness struct {
	// Begin begins a session. The tests hold one at a time, unless Many.
	Begin func() meta.Store
	// End ends a session in such a way that its ephemeral nodes are gone when
	// the next has begun.
	End func(meta.Store)
	// Many sessions may be held at once.
	Many bool
}

// Run tests the contract on the stores that open makes, one per subtest.
func Run(t *testing.T, open func(*testing.T) Harness) {
	for _, c := range []struct {
		name string
		f    func(*contract)
		many bool
	}{
		{"CreateGetSetDelete", testNodes, false},
		{"ChildrenAreSortedAndDirect", testChildren, false},
		{"RefusalsNameTheOperation", testConflicts, false},
		{"AllOrNothing", testAllOrNothing, false},
		{"OperationsSeeThoseBefore", testOrder, false},
		{"VersionsBeginAgain", testRecreated, false},
		{"RevRises", testRev, false},
		{"EphemeralsGoWithTheSession", testEphemerals, false},
		{"PersistsAcrossSessions", testPersistent, false},
		{"Limits", testLimits, false},
		{"BadPaths", testPaths, false},
		{"NotesInOrder", testNotes, false},
		{"NotesWait", testNotesWait, false},
		{"NotesOnlyOfWhatHappened", testNoteOfRefused, false},
		{"NotesGap", testNotesGap, false},
		{"NewSessionIsAGap", testNotesSession, false},
		{"ConcurrentCompareAndSet", testConcurrent, false},
		{"EndedContext", testContext, false},
		{"ValuesAreCopies", testCopies, false},
		{"OthersWrites", testOthers, true},
		{"OthersEphemerals", testOthersEphemerals, true},
		{"GoneBrokersAreTold", testGoneBrokers, true},
		{"WhatIsGivenUpIsTold", testGivenUp, true},
		{"OneOrderOfNotes", testOneOrder, true},
		{"NewestNote", testNewest, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := open(t)
			if c.many && !h.Many {
				t.Skip("this store has one session at a time")
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			k := &contract{T: t, h: h, ctx: ctx, Store: h.Begin()}
			defer func() { h.End(k.Store) }()
			c.f(k)
		})
	}
}

// contract is a test with a store in a session.
type contract struct {
	*testing.T
	meta.Store
	h   Harness
	ctx context.Context
}

// next ends the session and begins another.
func (c *contract) next() {
	c.h.End(c.Store)
	c.Store = c.h.Begin()
}

func (c *contract) must(ops ...meta.Op) {
	c.Helper()
	if err := c.Commit(c.ctx, ops...); err != nil {
		c.Fatalf("Commit: %v", err)
	}
}

// refused commits ops and wants the one at index to be refused with err.
func (c *contract) refused(index int, err error, ops ...meta.Op) {
	c.Helper()
	got := c.Commit(c.ctx, ops...)
	var conflict *meta.Conflict
	if !errors.As(got, &conflict) {
		c.Fatalf("Commit = %v, want a conflict", got)
	}
	if conflict.Index != index || !errors.Is(conflict, err) || conflict.Op.Path != ops[index].Path {
		c.Fatalf("Commit = operation %d: %v, want operation %d: %v", conflict.Index, conflict, index, err)
	}
}

func (c *contract) want(path, value string, version int32) meta.Node {
	c.Helper()
	n, err := c.Get(c.ctx, path)
	if err != nil || string(n.Value) != value || n.Version != version {
		c.Fatalf("Get(%s) = %q, version %d, %v, want %q, version %d", path, n.Value, n.Version, err, value, version)
	}
	return n
}

func (c *contract) wantMissing(path string) {
	c.Helper()
	if n, err := c.Get(c.ctx, path); !errors.Is(err, meta.ErrNotFound) {
		c.Fatalf("Get(%s) = %q, %v, want ErrNotFound", path, n.Value, err)
	}
}

func (c *contract) wantChildren(path string, names ...string) {
	c.Helper()
	got, err := c.Children(c.ctx, path)
	if err != nil || !slices.Equal(got, names) {
		c.Fatalf("Children(%s) = %q, %v, want %q", path, got, err, names)
	}
}

func create(path, value string) meta.Op {
	return meta.Op{Kind: meta.Create, Path: path, Value: []byte(value)}
}

func ephemeral(path, value string) meta.Op {
	return meta.Op{Kind: meta.CreateEphemeral, Path: path, Value: []byte(value)}
}

func set(path, value string, version int32) meta.Op {
	return meta.Op{Kind: meta.Set, Path: path, Value: []byte(value), Version: version}
}

func remove(path string, version int32) meta.Op {
	return meta.Op{Kind: meta.Delete, Path: path, Version: version}
}

func check(path string, version int32) meta.Op {
	return meta.Op{Kind: meta.Check, Path: path, Version: version}
}

func announce(topics ...string) meta.Op {
	return meta.Op{Kind: meta.Announce, Value: meta.Note{Topics: topics}.Encode()}
}

const anyVersion = meta.AnyVersion

func testNodes(c *contract) {
	c.wantMissing("/a")
	c.must(create("/a", "one"))
	c.want("/a", "one", 0)
	c.must(set("/a", "two", 0))
	c.want("/a", "two", 1)
	c.must(set("/a", "", anyVersion))
	c.want("/a", "", 2)
	c.must(check("/a", 2))
	c.want("/a", "", 2)
	c.must(remove("/a", 2))
	c.wantMissing("/a")
	c.must(create("/a", ""), remove("/a", anyVersion))
	c.wantMissing("/a")
	c.must() // nothing is allowed
}

func testChildren(c *contract) {
	c.must(create("/a", ""), create("/a/2", ""), create("/a/10", ""), create("/a/1", ""),
		create("/a/1/x", ""), create("/a!", ""), create("/ab", ""), create("/ab/y", ""))
	c.wantChildren("/a", "1", "10", "2")
	c.wantChildren("/a/1", "x")
	c.wantChildren("/a/2")
	if _, err := c.Children(c.ctx, "/none"); !errors.Is(err, meta.ErrNotFound) {
		c.Fatalf("Children of a missing node: %v", err)
	}
	c.must(remove("/a/10", anyVersion))
	c.wantChildren("/a", "1", "2")
}

func testConflicts(c *contract) {
	c.must(create("/a", ""), set("/a", "", 0), create("/a/b", ""))
	c.refused(0, meta.ErrExists, create("/a", ""))
	c.refused(0, meta.ErrExists, ephemeral("/a", ""))
	c.refused(0, meta.ErrNotFound, create("/x/y", ""))
	c.refused(0, meta.ErrVersion, set("/a", "", 0))
	c.refused(0, meta.ErrVersion, check("/a", 2))
	c.refused(0, meta.ErrVersion, remove("/a", 7))
	c.refused(0, meta.ErrNotEmpty, remove("/a", 1))
	c.refused(0, meta.ErrNotFound, set("/x", "", anyVersion))
	c.refused(0, meta.ErrNotFound, remove("/x", anyVersion))
	c.refused(0, meta.ErrNotFound, check("/x", anyVersion))
	c.refused(2, meta.ErrVersion, check("/a", 1), create("/ok", ""), set("/a/b", "", 3), check("/none", anyVersion))
}

func testAllOrNothing(c *contract) {
	c.must(create("/a", "old"), create("/gone", ""))
	c.refused(4, meta.ErrNotFound,
		create("/new", ""), ephemeral("/eph", ""), set("/a", "new", 0), remove("/gone", 0), check("/none", anyVersion))
	c.want("/a", "old", 0)
	c.want("/gone", "", 0)
	c.wantMissing("/new")
	c.wantMissing("/eph")
}

func testOrder(c *contract) {
	c.must(create("/a", "1"), create("/a/b", ""), check("/a", 0), set("/a", "2", 0), check("/a", 1), set("/a", "3", 1))
	c.want("/a", "3", 2)
	c.refused(1, meta.ErrNotFound, remove("/a/b", 0), check("/a/b", anyVersion))
	c.must(remove("/a/b", 0), remove("/a", 2), create("/a", "4"))
	c.want("/a", "4", 0)
}

func testRecreated(c *contract) {
	c.must(create("/a", ""), set("/a", "", 0), set("/a", "", 1))
	c.must(remove("/a", 2))
	c.must(create("/a", "again"))
	c.want("/a", "again", 0)
}

func testRev(c *contract) {
	c.must(create("/a", ""))
	a := c.want("/a", "", 0).Rev
	c.must(create("/b", ""))
	b := c.want("/b", "", 0).Rev
	if b <= a {
		c.Fatalf("Rev %d after %d", b, a)
	}
	if again := c.want("/a", "", 0).Rev; again != a {
		c.Fatalf("Rev of an unchanged node went from %d to %d", a, again)
	}
	c.must(create("/a/child", ""), check("/a", anyVersion))
	if again := c.want("/a", "", 0).Rev; again != a {
		c.Fatalf("Rev of a node with a new child went from %d to %d", a, again)
	}
	c.must(set("/a", "", 0))
	a = c.want("/a", "", 1).Rev
	if a <= b {
		c.Fatalf("Rev %d after %d", a, b)
	}
	c.next()
	if again := c.want("/a", "", 1).Rev; again != a {
		c.Fatalf("Rev went from %d to %d with the session", a, again)
	}
	c.must(remove("/a/child", 0), remove("/a", 1))
	c.must(create("/a", ""))
	if again := c.want("/a", "", 0).Rev; again <= a {
		c.Fatalf("Rev of a node created again went from %d to %d", a, again)
	}
}

func testEphemerals(c *contract) {
	c.must(create("/a", ""), ephemeral("/a/e", "1"), ephemeral("/a/f", ""), create("/a/p", ""))
	c.must(set("/a/e", "2", 0))
	c.must(remove("/a/f", 0), create("/a/f", "stays"))
	c.want("/a/e", "2", 1)
	c.wantChildren("/a", "e", "f", "p")
	id, lost := c.Session()
	select {
	case <-lost:
		c.Fatal("the session is lost from the start")
	default:
	}
	c.next()
	select {
	case <-lost:
	case <-c.ctx.Done():
		c.Fatal("the session has ended, and nobody was told")
	}
	if again, _ := c.Session(); again == id {
		c.Fatalf("two sessions have id %d", id)
	}
	c.wantMissing("/a/e")
	c.wantChildren("/a", "f", "p")
	c.must(ephemeral("/a/e", "3"))
	c.want("/a/e", "3", 0)
}

func testPersistent(c *contract) {
	c.must(create("/a", "1"), create("/a/b", "x"))
	c.must(set("/a", "2", 0))
	c.next()
	c.want("/a", "2", 1)
	c.want("/a/b", "x", 0)
	c.wantChildren("/a", "b")
}

func testLimits(c *contract) {
	tooLarge := func(what string, ops ...meta.Op) {
		c.Helper()
		if err := c.Commit(c.ctx, ops...); !errors.Is(err, meta.ErrTooLarge) {
			c.Fatalf("%s: %v, want ErrTooLarge", what, err)
		}
	}
	c.must(create("/a", ""))
	var ops []meta.Op
	for i := range meta.MaxOps - 1 {
		ops = append(ops, create(fmt.Sprintf("/a/%d", i), ""))
	}
	ops = append(ops, announce("t"))
	c.must(ops...)
	tooLarge("operations", append(ops, check("/a", anyVersion))...)
	c.must(create("/b", strings.Repeat("x", meta.MaxBytes-2)))
	tooLarge("bytes", create("/c", strings.Repeat("x", meta.MaxBytes-1)))
	tooLarge("notes", announce("t"), announce("u"))
	c.wantMissing("/c")
}

func testPaths(c *contract) {
	for _, path := range []string{"", "a", "/", "//", "/a/", "//a", "/a//b", "/.", "/..", "/a/../b", "/a\x00b", "/a\n"} {
		err := c.Commit(c.ctx, create(path, ""))
		if conflict := (*meta.Conflict)(nil); err == nil || errors.As(err, &conflict) {
			c.Errorf("Create(%q) = %v", path, err)
		}
	}
	c.must(create("/brokers", ""), create("/brokers/<default>", ""), create("/brokers/a.b_c-d", ""), create("/brokers/ü", ""))
}

// begin is the number to ask for the next notes with.
func (c *contract) begin() int64 {
	c.Helper()
	_, err := c.Changes(c.ctx, -1)
	gap := (*meta.ErrGap)(nil)
	if !errors.As(err, &gap) {
		c.Fatalf("Changes(-1) = %v, want a gap", err)
	}
	return gap.Last
}

func testNotes(c *contract) {
	last := c.begin()
	full := meta.Note{
		Topics:     []string{"t", "u"},
		Partitions: []meta.TopicPartition{{Topic: "t", Partition: 3}, {Topic: "t", Partition: 1}},
		Configs:    []string{"brokers/1"},
		Brokers:    true,
	}
	c.must(create("/a", ""), meta.Op{Kind: meta.Announce, Value: full.Encode()})
	c.must(create("/b", "")) // without a note
	for i := range 5 {
		c.must(announce(fmt.Sprint(i)))
	}
	var got []meta.Note
	for after := last; len(got) < 6; {
		notes, err := c.Changes(c.ctx, after)
		if err != nil || len(notes) == 0 {
			c.Fatalf("Changes = %v, %v", notes, err)
		}
		got = append(got, notes...)
		after = notes[len(notes)-1].Number
	}
	for i, n := range got {
		if n.Number != last+int64(i)+1 {
			c.Fatalf("note %d after %d has number %d", i, last, n.Number)
		}
		if i > 0 && !slices.Equal(n.Topics, []string{fmt.Sprint(i - 1)}) {
			c.Fatalf("note %d = %+v", i, n)
		}
	}
	if n := got[0]; !slices.Equal(n.Topics, full.Topics) || !slices.Equal(n.Partitions, full.Partitions) ||
		!slices.Equal(n.Configs, full.Configs) || !n.Brokers {
		c.Fatalf("note = %+v, want %+v", n, full)
	}
	if again := c.begin(); again != last+6 {
		c.Fatalf("after 6 notes the last went from %d to %d", last, again)
	}
}

func testNotesWait(c *contract) {
	last := c.begin()
	type result struct {
		notes []meta.Note
		err   error
	}
	got := make(chan result, 3)
	for range cap(got) {
		go func() {
			notes, err := c.Changes(c.ctx, last)
			got <- result{notes, err}
		}()
	}
	c.must(create("/a", ""))
	c.must(announce("t"))
	for range cap(got) {
		if r := <-got; r.err != nil || len(r.notes) != 1 || r.notes[0].Number != last+1 {
			c.Fatalf("Changes = %+v, %v", r.notes, r.err)
		}
	}
}

func testNoteOfRefused(c *contract) {
	last := c.begin()
	c.refused(1, meta.ErrNotFound, announce("t"), check("/none", anyVersion))
	c.must(announce("u"))
	notes, err := c.Changes(c.ctx, last)
	if err != nil || len(notes) != 1 || notes[0].Topics[0] != "u" {
		c.Fatalf("Changes = %+v, %v", notes, err)
	}
}

func testNotesGap(c *contract) {
	last := c.begin()
	if _, err := c.Changes(c.ctx, last+1); err == nil {
		c.Fatal("a number from the future is no gap")
	}
	c.must(announce("t"))
	if _, err := c.Changes(c.ctx, last); err != nil {
		c.Fatalf("one note behind: %v", err)
	}
	if again := c.begin(); again != last+1 {
		c.Fatalf("begin = %d, want %d", again, last+1)
	}
}

func testNotesSession(c *contract) {
	last := c.begin()
	c.must(announce("t"))
	last++
	c.next()
	gap := (*meta.ErrGap)(nil)
	if _, err := c.Changes(c.ctx, last); !errors.As(err, &gap) {
		c.Fatalf("Changes in a new session = %v, want a gap", err)
	}
	if gap.Last < last {
		c.Fatalf("numbers went back from %d to %d", last, gap.Last)
	}
	c.must(announce("u"))
	if notes, err := c.Changes(c.ctx, gap.Last); err != nil || notes[0].Number != gap.Last+1 {
		c.Fatalf("Changes = %+v, %v", notes, err)
	}
}

func testConcurrent(c *contract) {
	c.must(create("/n", ""), create("/log", ""))
	const writers, each = 8, 20
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for done := 0; done < each; {
				n, err := c.Get(c.ctx, "/n")
				if err != nil {
					c.Error(err)
					return
				}
				err = c.Commit(c.ctx, set("/n", "", n.Version), create(fmt.Sprintf("/log/%04d", n.Version), ""), announce("t"))
				switch conflict := (*meta.Conflict)(nil); {
				case err == nil:
					done++
				case !errors.As(err, &conflict):
					c.Error(err)
					return
				}
			}
		})
	}
	last := c.begin()
	wg.Wait()
	c.want("/n", "", writers*each)
	if names, err := c.Children(c.ctx, "/log"); err != nil || len(names) != writers*each {
		c.Fatalf("%d commits left %d nodes, %v", writers*each, len(names), err)
	}
	if end := c.begin(); end-last > writers*each {
		c.Fatalf("%d notes of %d commits", end-last, writers*each)
	}
}

func testContext(c *contract) {
	last := c.begin()
	ctx, cancel := context.WithCancel(c.ctx)
	done := make(chan error)
	go func() {
		_, err := c.Changes(ctx, last)
		done <- err
	}()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		c.Fatalf("Changes = %v", err)
	}
	if _, err := c.Get(ctx, "/a"); !errors.Is(err, context.Canceled) {
		c.Fatalf("Get = %v", err)
	}
	if _, err := c.Children(ctx, "/a"); !errors.Is(err, context.Canceled) {
		c.Fatalf("Children = %v", err)
	}
	if err := c.Commit(ctx, create("/a", "")); !errors.Is(err, context.Canceled) {
		c.Fatalf("Commit = %v", err)
	}
}

func testCopies(c *contract) {
	value := []byte("abc")
	c.must(meta.Op{Kind: meta.Create, Path: "/a", Value: value})
	value[0] = 'x'
	n := c.want("/a", "abc", 0)
	n.Value[0] = 'y'
	c.want("/a", "abc", 0)
}
