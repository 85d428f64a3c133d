package metatest

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"firn/replication/meta"
)

// another begins a session beside the test's own. It ends with the test, if it
// hasn't before.
func (c *contract) another() (other *contract, end func()) {
	o := &contract{T: c.T, h: c.h, ctx: c.ctx, Store: c.h.Begin()}
	end = sync.OnceFunc(func() { c.h.End(o.Store) })
	c.Cleanup(end)
	return o, end
}

// until reads notes until one is as wanted, and returns the number to go on after.
func (c *contract) until(after int64, wanted func(meta.Note) bool) int64 {
	c.Helper()
	for {
		notes, err := c.Changes(c.ctx, after)
		if err != nil {
			c.Fatalf("Changes = %v", err)
		}
		for _, n := range notes {
			after = n.Number
			if wanted(n) {
				return after
			}
		}
	}
}

func testOthers(c *contract) {
	other, _ := c.another()
	last := other.begin()
	c.must(create("/a", "1"), announce("t"))
	last = other.until(last, func(n meta.Note) bool { return slices.Contains(n.Topics, "t") })
	n := other.want("/a", "1", 0)
	other.must(set("/a", "2", 0), announce("u"))
	other.until(last, func(n meta.Note) bool { return slices.Contains(n.Topics, "u") })
	c.refused(0, meta.ErrVersion, set("/a", "3", 0)) // whatever this session has read so far
	if got := other.want("/a", "2", 1); got.Rev <= n.Rev {
		c.Fatalf("Rev went from %d to %d", n.Rev, got.Rev)
	}
}

func testOthersEphemerals(c *contract) {
	other, end := c.another()
	other.must(create("/a", ""), ephemeral("/a/mine", ""), ephemeral("/a/yours", ""), ephemeral("/a/stays", ""))
	c.refused(0, meta.ErrExists, ephemeral("/a/mine", ""))
	c.must(remove("/a/yours", anyVersion), ephemeral("/a/yours", "now mine"))
	c.must(check("/a/stays", 0), remove("/a/stays", 0), create("/a/stays", "for good"))
	end()
	c.wantChildren("/a", "stays", "yours")
	c.want("/a/yours", "now mine", 0)
	c.must(ephemeral("/a/mine", ""))
}

// testGoneBrokers: a broker whose session ends is told of by a note, without
// anybody having committed one.
func testGoneBrokers(c *contract) {
	if err := meta.Init(c.ctx, c.Store); err != nil {
		c.Fatal(err)
	}
	path := meta.BrokerPath(7)
	for range 3 {
		other, end := c.another()
		other.must(ephemeral(path, ""), announce("registered"))
		last := c.begin()
		c.want(path, "", 0)
		c.must(announce("before"))
		last = c.until(last, func(n meta.Note) bool { return slices.Contains(n.Topics, "before") })
		end()
		last = c.until(last, func(n meta.Note) bool { return n.Brokers })
		c.wantMissing(path)
		c.must(announce("after"))
		c.until(last, func(n meta.Note) bool { return slices.Contains(n.Topics, "after") })
	}
}

// testGivenUp: what a broker gives up, its leads while its disk is full among it, is
// in the others' picture with the next note, and with what it lists besides; it
// ends with the registration.
func testGivenUp(c *contract) {
	if err := meta.Init(c.ctx, c.Store); err != nil {
		c.Fatal(err)
	}
	other, _ := c.another()
	in := meta.Incarnation{Broker: meta.Broker{ID: 7, StorageID: "disk"}, Intend: func(int64) error { return nil }}
	img, last, err := meta.Begin(c.ctx, c.Store)
	if err != nil {
		c.Fatal(err)
	}
	full := func() bool {
		reg, there := img.Registered()[7]
		return there && img.Offline[7].IsFull(reg.Epoch)
	}
	follow := func(want bool) {
		c.Helper()
		for full() != want {
			notes, err := c.Changes(c.ctx, last)
			if err == nil {
				err = img.Update(c.ctx, c.Store, notes)
			}
			if err != nil {
				c.Fatal(err)
			}
			last = notes[len(notes)-1].Number
		}
	}
	lost := meta.Lost{Topic: meta.TopicID{1}, Partition: 3}
	for range 2 {
		reg, err := meta.Register(c.ctx, other.Store, in)
		if err != nil {
			c.Fatal(err)
		}
		in.LastEpoch = reg.Epoch
		follow(false)
		for _, epoch := range []int64{reg.Epoch, 0, reg.Epoch} {
			o, err := meta.LoadOffline(c.ctx, other.Store, 7)
			if err != nil {
				c.Fatal(err)
			}
			o.Full = epoch
			o.Add(lost)
			if err := meta.SetOffline(o).With(reg.Fence()...).Commit(c.ctx, other.Store); err != nil {
				c.Fatal(err)
			}
			follow(epoch != 0)
			if !img.Offline[7].Lists(lost.Topic, lost.Partition) {
				c.Fatalf("listed is %+v", img.Offline[7])
			}
		}
	}
}

// testOneOrder: two sessions see the notes of both in the same order.
func testOneOrder(c *contract) {
	other, _ := c.another()
	const each = 50
	seen := make([][]string, 2)
	var readers, writers sync.WaitGroup
	for i, s := range []*contract{c, other} {
		after := s.begin()
		readers.Go(func() {
			for len(seen[i]) < 2*each {
				notes, err := s.Changes(c.ctx, after)
				if err != nil {
					c.Errorf("Changes = %v", err)
					return
				}
				for _, n := range notes {
					after = n.Number
					seen[i] = append(seen[i], n.Topics...)
				}
			}
		})
		writers.Go(func() {
			for k := range each {
				err := s.Commit(c.ctx, announce(fmt.Sprintf("%d-%d", i, k)))
				if conflict := (*meta.Conflict)(nil); err != nil && !errors.As(err, &conflict) {
					c.Errorf("Commit = %v", err)
				}
			}
		})
	}
	writers.Wait()
	readers.Wait()
	if !slices.Equal(seen[0], seen[1]) || len(seen[0]) != 2*each {
		c.Fatalf("two sessions saw\n%q\n%q", seen[0], seen[1])
	}
}

// Whoever takes all notes up to the newest knows all that others had noted before
// it asked.
func testNewest(c *contract) {
	store, ok := c.Store.(meta.Current)
	if !ok {
		c.Skip("this store doesn't say how far its notes go")
	}
	last := c.begin()
	if n, err := store.Newest(c.ctx); err != nil || n != last {
		c.Fatalf("Newest = %d, %v, want %d", n, err, last)
	}
	other := c.h.Begin()
	defer func() { c.h.End(other) }()
	for i := range 20 {
		if err := other.Commit(c.ctx, announce(fmt.Sprint(i))); err != nil {
			c.Fatal(err)
		}
		n, err := store.Newest(c.ctx)
		if err != nil || n != last+1 {
			c.Fatalf("Newest = %d, %v, want %d", n, err, last+1)
		}
		notes, err := c.Changes(c.ctx, last)
		if err != nil || len(notes) != 1 || notes[0].Number != n || notes[0].Topics[0] != fmt.Sprint(i) {
			c.Fatalf("Changes = %+v, %v, want note %d", notes, err, n)
		}
		last = n
	}
	c.next()
	if n, err := c.Store.(meta.Current).Newest(c.ctx); err != nil || n != c.begin() {
		c.Fatalf("Newest in a new session = %d, %v", n, err)
	}
}
