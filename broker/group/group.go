package group

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Config is what groups go by. Callers may change it at any time between calls.
type Config struct {
	// InitialDelay is how long an empty group waits for more members
	// (group.initial.rebalance.delay.ms).
	InitialDelay time.Duration
	// MinSession and MaxSession bound session.timeout.ms.
	MinSession, MaxSession time.Duration
	// MaxSize is the most members (group.max.size).
	MaxSize int
	// Retention is how long an unused offset is kept (offsets.retention.minutes).
	Retention time.Duration
	// MaxMetadata bounds the words that go with an offset (offset.metadata.max.bytes).
	MaxMetadata int
}

// AllowsSession tells whether a member may have that session timeout.
func (c *Config) AllowsSession(millis int32) bool {
	d := time.Duration(millis) * time.Millisecond
	return d >= c.MinSession && d <= c.MaxSession
}

// newMemberTimeout is how long a new member's JoinGroup may be held: it has no
// id yet and sends no heartbeats, so nothing else shows that it has gone.
const newMemberTimeout = 5 * time.Minute

// Group is one classic group.
type Group struct {
	name string
	cfg  *Config

	state, before State
	// since is when it took its state.
	since      time.Time
	generation int32
	// protocolType is "consumer" for consumers; "" for offsets without members.
	protocolType string
	protocol     string
	leader       string // a member's id
	// members are in the order in which they joined.
	members []*member
	byID    map[string]*member
	static  map[string]*member // by group.instance.id
	pending []pending
	// topics are what the members subscribe to, nil where that isn't known.
	topics map[string]bool

	offsets offsets

	// join is when the wait for members is over, if it is a wait.
	join struct {
		deadline time.Time // zero: no wait
		// initial: the group was empty; then the wait may be prolonged by delay
		// out of remaining, if more members have come.
		initial          bool
		delay, remaining time.Duration
		more             bool
	}
	// syncBy is when all members must have synced, zero for no such wait.
	syncBy time.Time
	// next is no later than the earliest deadline.
	next time.Time

	// known: there are records of the group.
	known bool

	now time.Time // of the call under way
	out Effects
}

// New makes a group that nobody has heard of.
func New(name string, cfg *Config, now time.Time) *Group {
	return &Group{
		name:   name,
		cfg:    cfg,
		since:  now,
		byID:   map[string]*member{},
		static: map[string]*member{},
	}
}

// Name is the group's id.
func (g *Group) Name() string { return g.name }

// State is where the group stands.
func (g *Group) State() State { return g.state }

// Generation counts the rebalances.
func (g *Group) Generation() int32 { return g.generation }

// ProtocolType is "consumer" for consumers, "" for offsets without members.
func (g *Group) ProtocolType() string { return g.protocolType }

// Size is the number of members.
func (g *Group) Size() int { return len(g.members) }

// Vacant: nothing of the group is worth keeping, or was ever written.
func (g *Group) Vacant() bool {
	return g.state == Empty && len(g.pending) == 0 && !g.known && g.offsets.none()
}

func (g *Group) enter(s State) { g.before, g.state, g.since = g.state, s, g.now }

func (g *Group) add(m *member) {
	if len(g.members) == 0 {
		g.leader = ""
	}
	if g.leader == "" {
		g.leader = m.id
	}
	g.members = append(g.members, m)
	g.byID[m.id] = m
	if m.isStatic() {
		g.static[*m.instance] = m
	}
	g.forgetPending(m.id)
}

func (g *Group) remove(m *member) {
	g.members = slices.DeleteFunc(g.members, func(o *member) bool { return o == m })
	delete(g.byID, m.id)
	if m.isStatic() {
		delete(g.static, *m.instance)
	}
	if g.leader == m.id {
		g.leader = ""
		if len(g.members) > 0 {
			g.leader = g.members[0].id
		}
	}
}

func (g *Group) isPending(id string) bool {
	return slices.ContainsFunc(g.pending, func(p pending) bool { return p.id == id })
}

func (g *Group) forgetPending(id string) {
	g.pending = slices.DeleteFunc(g.pending, func(p pending) bool { return p.id == id })
}

// identify finds the member that a request is from, and refuses one whose place
// another process has taken (F3).
func (g *Group) identify(id string, instance *string) (*member, *kerr.Error) {
	if instance != nil {
		switch m := g.static[*instance]; {
		case m == nil:
			return nil, kerr.UnknownMemberID
		case m.id != id:
			return nil, kerr.FencedInstanceID
		}
	}
	if m := g.byID[id]; m != nil {
		return m, nil
	}
	return nil, kerr.UnknownMemberID
}

// joined counts the members whose JoinGroup waits.
func (g *Group) joined() (n int) {
	for _, m := range g.members {
		if m.joining != 0 {
			n++
		}
	}
	return n
}

func (g *Group) allJoined() bool { return g.joined() == len(g.members) && len(g.pending) == 0 }

// rebalanceTimeout is the longest that a member asks for.
func (g *Group) rebalanceTimeout() (d time.Duration) {
	for _, m := range g.members {
		d = max(d, m.rebalance)
	}
	return d
}

// common says whether all members can do a protocol.
func (g *Group) common(protocol string) bool {
	for _, m := range g.members {
		if !slices.ContainsFunc(m.protocols, func(p kmsg.JoinGroupRequestProtocol) bool { return p.Name == protocol }) {
			return false
		}
	}
	return true
}

// accepts says whether a member of that kind fits to those that are there.
func (g *Group) accepts(protocolType string, protocols []kmsg.JoinGroupRequestProtocol) bool {
	if g.state == Empty {
		return protocolType != "" && len(protocols) > 0
	}
	return protocolType == g.protocolType &&
		slices.ContainsFunc(protocols, func(p kmsg.JoinGroupRequestProtocol) bool { return g.common(p.Name) })
}

// elect is the protocol with the most votes; of several, the one voted for first.
func (g *Group) elect() (winner string) {
	votes := map[string]int{}
	for _, m := range g.members {
		votes[m.vote(g.common)]++
	}
	for _, m := range g.members {
		if v := m.vote(g.common); winner == "" || votes[v] > votes[winner] {
			winner = v
		}
	}
	return winner
}
