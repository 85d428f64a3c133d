package group

import (
	"bytes"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// member is one member of a group.
type member struct {
	id       string
	instance *string // of a static member
	clientID string
	host     string

	session   time.Duration
	rebalance time.Duration
	// protocols are what it can do, by preference, each with its metadata.
	protocols  []kmsg.JoinGroupRequestProtocol
	assignment []byte

	// joining and syncing are its requests that wait, 0 for none.
	joining, syncing Ticket
	// fresh: it waits for the answer to its first JoinGroup and so can't send
	// heartbeats yet.
	fresh bool
	// owesSync: it has been told of the generation, and has not synced yet.
	owesSync bool
	// deadline is when its session ends, zero for never.
	deadline time.Time
}

// excused: its silence is ours, since it waits for an answer.
func (m *member) excused() bool { return !m.fresh && (m.joining != 0 || m.syncing != 0) }

// speaks says whether these are the protocols that it had before.
func (m *member) speaks(protocols []kmsg.JoinGroupRequestProtocol) bool {
	return slices.EqualFunc(m.protocols, protocols, func(a, b kmsg.JoinGroupRequestProtocol) bool {
		return a.Name == b.Name && bytes.Equal(a.Metadata, b.Metadata)
	})
}

// metadata is what it said for a protocol.
func (m *member) metadata(protocol string) []byte {
	for i := range m.protocols {
		if m.protocols[i].Name == protocol {
			return m.protocols[i].Metadata
		}
	}
	return nil
}

// vote is the first of its protocols that all members can do.
func (m *member) vote(common func(string) bool) string {
	for i := range m.protocols {
		if common(m.protocols[i].Name) {
			return m.protocols[i].Name
		}
	}
	return ""
}

func (m *member) isStatic() bool { return m.instance != nil }

// pending is a dynamic member that was given an id and has not come back with it.
type pending struct {
	id       string
	deadline time.Time
}
