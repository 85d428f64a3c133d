package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// CheckCommit says whether an OffsetCommit may commit: a member of the generation
// may, and, while there are no members, anybody who claims to be none. A commit
// that comes in a rebalance fails rather than overtake it: what its sender still
// holds may be another's by now (F3).
func (g *Group) CheckCommit(now time.Time, req *kmsg.OffsetCommitRequest) *kerr.Error {
	g.now = now
	switch {
	case g.state == Dead:
		return kerr.CoordinatorNotAvailable
	case req.Generation < 0 && g.state == Empty:
		return nil
	case req.Generation < 0 && req.MemberID == "" && req.InstanceID == nil:
		return kerr.UnknownMemberID
	}
	m, err := g.identify(req.MemberID, req.InstanceID)
	switch {
	case err != nil:
		return err
	case req.Generation != g.generation:
		return kerr.IllegalGeneration
	case g.state == CompletingRebalance:
		return kerr.RebalanceInProgress
	}
	g.alive(m, m.session)
	return nil
}

// CheckDelete says whether the group may be deleted.
func (g *Group) CheckDelete() *kerr.Error {
	switch g.state {
	case Dead:
		return kerr.GroupIDNotFound
	case Empty:
		return nil
	}
	return kerr.NonEmptyGroup
}

// CheckOffsetDelete says whether offsets of a topic may be deleted: not while
// members read it.
func (g *Group) CheckOffsetDelete(topic string) *kerr.Error {
	switch {
	case g.state == Dead:
		return kerr.GroupIDNotFound
	case g.state == Empty:
		return nil
	case g.protocolType != consumerProtocol:
		return kerr.NonEmptyGroup
	case g.topics == nil || g.topics[topic]:
		return kerr.GroupSubscribedToTopic
	}
	return nil
}

// Tombstones are the records that delete the group and its offsets.
func (g *Group) Tombstones() []Record {
	var all []Record
	for topic, ps := range g.offsets.byTopic {
		for p := range ps {
			all = append(all, OffsetTombstone(g.name, topic, p))
		}
	}
	return append(all, tombstone(g.name))
}

// Expire lists the offsets that are past their time: retention counts from the
// last commit in a group that never had members, from when it became empty in
// one that had, and, for a topic that the members of a stable group no longer
// read, from the last commit (F4). empty: nothing is left, and the group may go.
func (g *Group) Expire(now time.Time) (expired []Partition, empty bool) {
	base, ok := g.expiryBase()
	if !ok {
		return nil, false
	}
	empty = g.state == Empty && len(g.pending) == 0
	for topic, ps := range g.offsets.byTopic {
		for p, o := range ps {
			if g.topics[topic] || !o.expired(base(o), now, g.cfg.Retention) {
				empty = false
				continue
			}
			expired = append(expired, Partition{topic, p})
		}
	}
	return expired, empty
}

// expiryBase is from when on an offset's retention counts; false: it doesn't.
func (g *Group) expiryBase() (func(Offset) time.Time, bool) {
	committed := func(o Offset) time.Time { return o.Committed }
	switch {
	case g.state == Empty && g.protocolType == "":
		return committed, true
	case g.state == Empty:
		return func(o Offset) time.Time {
			if g.since.IsZero() { // written by a broker that didn't note it
				return o.Committed
			}
			return g.since
		}, true
	case g.state == Stable && g.topics != nil:
		return committed, true
	}
	return nil, false
}
