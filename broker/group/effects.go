package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Ticket names a request that waits for its answer. The caller makes them up;
// 0 is nobody.
type Ticket uint64

// Effects is what an input leads to. The writes come first: nothing that depends
// on them is among the replies.
type Effects struct {
	Writes  []*Write
	Replies []Reply
}

// Reply answers the request that waits with a ticket: a JoinGroupResponse or a
// SyncGroupResponse.
type Reply struct {
	To      Ticket
	Message kmsg.Response
}

// Write is records to append, all or none. The caller must say what has become
// of it: see Group.Written.
type Write struct {
	Records []Record
	// then is called when the write is committed (nil) or has failed; nil: the
	// group doesn't depend on it.
	then func(*kerr.Error)
}

// Awaited says whether the group waits for the write.
func (w *Write) Awaited() bool { return w.then != nil }

// Written tells the group that a write is committed, or, with an error, that it
// failed or that its outcome is unknown.
func (g *Group) Written(now time.Time, w *Write, err *kerr.Error) Effects {
	if w.then == nil {
		return Effects{}
	}
	g.now = now
	w.then(err)
	return g.effects()
}

// effects hands out what has come together since the last call.
func (g *Group) effects() Effects {
	e := g.out
	g.out = Effects{}
	return e
}

func (g *Group) reply(to Ticket, m kmsg.Response) {
	if to != 0 {
		g.out.Replies = append(g.out.Replies, Reply{to, m})
	}
}

// write has the group's metadata written as it stands, with these assignments.
func (g *Group) write(assignments map[string][]byte, then func(*kerr.Error)) {
	g.out.Writes = append(g.out.Writes, &Write{Records: []Record{g.metadataRecord(assignments)}, then: then})
	g.known = true
}
