package zkmeta

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"firn/replication/meta"
)

const changesPath = "/firn/changes"

// brokersPath is where the ephemeral nodes stand whose going must be told.
var brokersPath = strings.TrimSuffix(meta.BrokerPath(0), "/0")

func generationPath(number int64) string {
	return changesPath + "/" + strconv.FormatInt(number, 10)
}

// generation is the current generation of notes, and the version of the node that
// names it, which every commit with a note checks.
type generation struct {
	number  int64
	version int32
}

// maxGeneration keeps note numbers, a generation and 31 bits, in an int64.
const maxGeneration = 1<<31 - 1

func parseGeneration(value []byte, stat *zk.Stat) (*generation, error) {
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil || n < 0 || n > maxGeneration {
		return nil, fmt.Errorf("zkmeta: %s: generation %.20q", changesPath, value)
	}
	return &generation{n, stat.Version}, nil
}

// loadGeneration reads the current generation.
func (x *session) loadGeneration(c *zk.Conn) (*generation, error) {
	value, stat, err := c.Get(x.path(changesPath))
	if err != nil {
		return nil, fmt.Errorf("zkmeta: %s: %w", changesPath, err)
	}
	gen, err := parseGeneration(value, stat)
	if err == nil {
		x.generation.Store(gen)
	}
	return gen, err
}

// follower brings the notes of ZooKeeper into the session's meta.Notes. There is
// one a session, however many wait for notes, and it holds three watches: on the
// note that comes next, on the generation, and on the names of the registered
// brokers. They never grow with partitions. That the library sets watches again
// after a reconnect, and only logs when that fails, is why it also looks by itself.
type follower struct {
	x    *session
	gen  int64 // the generation that it follows
	next int64 // sequence number in it of the note to come

	note, generation, brokers <-chan zk.Event // nil: not armed
	gone                      int32           // how many brokers have gone, ever
}

// lookAgain is how often the follower looks without having been told to.
const lookAgain = 5 * time.Second

// startNotes begins to follow the notes; their numbers go on from base or later.
// Whatever happens after it is told.
func (x *session) startNotes(ctx context.Context, base int64) error {
	f := &follower{x: x}
	if _, err := ask(ctx, x, func(*zk.Conn) (struct{}, error) { return struct{}{}, f.begin() }); err != nil {
		return err
	}
	base = max(base, f.gen<<31+f.next)
	x.notes = meta.NotesAfter(base)
	x.taken.Store(&position{f.gen, f.next, base})
	if !x.link.enter() {
		return errNotSent
	}
	go func() {
		defer x.link.leave()
		f.run()
	}()
	return nil
}

// begin arms all watches. What was noted before it is not told.
func (f *follower) begin() error {
	if err := f.watchGeneration(); err != nil {
		return err
	}
	if _, err := f.watchBrokers(); err != nil {
		return err
	}
	var err error
	if f.next, err = f.count(); err != nil {
		return err
	}
	return nil
}

// run follows until the client ends.
func (f *follower) run() {
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for all := false; ; {
		// Taken first: what changes while we look has us look again.
		_, _, _, changed := f.x.link.status()
		var retry <-chan time.Time
		if err := f.look(all); err != nil {
			f.x.link.heard(err)
			retry = time.After(100 * time.Millisecond)
		} else {
			all = false
		}
		select {
		case <-f.note:
			f.note = nil
		case <-f.generation:
			f.generation = nil
		case <-f.brokers:
			f.brokers = nil
		case <-tick.C:
			all = true
		case <-changed:
			all = true
		case <-retry:
		case <-f.x.link.ctx.Done():
			return
		}
	}
}

// look takes what is new and arms the watches that have fired. all: it looks where
// a watch stands, too.
func (f *follower) look(all bool) error {
	if f.generation == nil || all {
		before := f.gen
		if err := f.watchGeneration(); err != nil {
			return err
		}
		if f.gen != before {
			return f.skip()
		}
	}
	if err := f.takeAll(); err != nil {
		return err
	}
	if f.brokers == nil || all {
		gone, err := f.watchBrokers()
		if err != nil {
			return err
		}
		if gone {
			f.x.notes.Add(meta.Note{Brokers: true})
		}
	}
	return nil
}

// takeAll takes notes until the next isn't there yet, and a watch on it is armed.
func (f *follower) takeAll() error {
	for {
		got, err := f.take()
		if err != nil {
			return err
		}
		if got {
			continue
		}
		if f.note == nil {
			exists, _, ch, err := f.x.conn.ExistsW(f.path())
			if err != nil {
				return err
			}
			if exists {
				continue
			}
			f.note = ch
		}
		// A note that was trimmed before we came to it looks like one to come.
		made, err := f.count()
		if err != nil {
			return err
		}
		if made <= f.next {
			return nil
		}
		if got, err = f.take(); err != nil {
			return err
		} else if !got {
			return f.skip()
		}
	}
}

// take takes the next note, if it is there.
func (f *follower) take() (bool, error) {
	value, _, err := f.x.conn.Get(f.path())
	if errors.Is(err, zk.ErrNoNode) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	f.next++
	f.note = nil // that of the note taken has fired, or will
	note, err := meta.DecodeNote(value)
	f.reach()
	if err != nil {
		f.x.notes.Lose() // whatever it told
		return true, nil
	}
	f.x.notes.Add(note)
	return true, nil
}

// skip goes on after the newest note: those in between are lost to us.
func (f *follower) skip() error {
	next, err := f.count()
	if err != nil {
		return err
	}
	f.next, f.note = next, nil
	f.reach()
	f.x.notes.Lose()
	return f.takeAll()
}

func (f *follower) path() string {
	return f.x.path(generationPath(f.gen)) + fmt.Sprintf("/%010d", f.next)
}

// count is how many notes this generation has had: ZooKeeper counts the creations
// and deletions of children.
func (f *follower) count() (int64, error) { return f.x.countNotes(f.x.conn, f.gen) }

func (x *session) countNotes(c *zk.Conn, gen int64) (int64, error) {
	exists, stat, err := c.Exists(x.path(generationPath(gen)))
	if err != nil {
		return 0, err
	}
	if !exists {
		return 0, fmt.Errorf("zkmeta: %s: %w", changesPath, zk.ErrNoNode)
	}
	return (int64(stat.Cversion) + int64(stat.NumChildren)) / 2, nil
}

// watchGeneration reads which generation is the current one, and arms the watch if
// it isn't.
func (f *follower) watchGeneration() error {
	path, ch := f.x.path(changesPath), f.generation
	var value []byte
	var stat *zk.Stat
	var err error
	if ch == nil {
		value, stat, ch, err = f.x.conn.GetW(path)
	} else {
		value, stat, err = f.x.conn.Get(path)
	}
	if err != nil {
		return err
	}
	gen, err := parseGeneration(value, stat)
	if err != nil {
		return err
	}
	f.x.generation.Store(gen)
	f.gen, f.generation = gen.number, ch
	return nil
}

// watchBrokers tells whether brokers have gone since it last looked, those too that
// came in the meantime: ZooKeeper counts creations and deletions of children. It
// arms the watch if it isn't.
func (f *follower) watchBrokers() (gone bool, err error) {
	path, ch := f.x.path(brokersPath), f.brokers
	exists, stat, err := f.x.conn.Exists(path)
	if err == nil && f.brokers == nil && !exists { // its coming is told
		exists, stat, ch, err = f.x.conn.ExistsW(path)
	}
	if err == nil && f.brokers == nil && exists {
		_, stat, ch, err = f.x.conn.ChildrenW(path)
	}
	if err != nil {
		return false, err
	}
	f.brokers = ch
	before := f.gone
	if f.gone = 0; exists {
		f.gone = (stat.Cversion - stat.NumChildren) / 2
	}
	return f.gone != before, nil
}

// Changes returns the notes after the given one; meta.ErrClosed if the session ends
// while it waits: what comes next is another session's (Z1).
func (s *Store) Changes(ctx context.Context, after int64) ([]meta.Note, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	x, err := s.session(ctx)
	if err != nil {
		return nil, err
	}
	if !x.begun.Swap(true) {
		after = -1
	}
	return x.notes.Changes(ctx, after, x.lost)
}
