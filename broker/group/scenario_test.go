package group

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/replication/scenariotest"
)

// TestScenarios plays scenarios; see script.do for the commands. After each, what is
// due at once is done.
func TestScenarios(t *testing.T) {
	scenariotest.Play(t, func(t *testing.T) func([]scenariotest.Command) string {
		s := newScript(t)
		return func(commands []scenariotest.Command) string {
			s.out.Reset()
			for _, c := range commands {
				s.do(args{c})
				s.advance(0)
			}
			return s.out.String()
		}
	})
}

// script is a group with whoever talks to it. Requests have names; a new member's
// id is the client's or instance's name, a dash, and the request's name.
type script struct {
	t     *testing.T
	cfg   Config
	g     *Group
	start time.Time
	now   time.Time
	names map[Ticket]string
	// hold: writes are kept until the script says what becomes of them.
	hold bool
	held []*Write
	// log is all that was written: what another coordinator would load.
	log []Record
	out strings.Builder
}

func newScript(t *testing.T) *script {
	start := time.UnixMilli(1_000_000_000_000)
	s := &script{t: t, start: start, now: start, names: map[Ticket]string{}}
	s.cfg = Config{MinSession: time.Second, MaxSession: time.Hour, MaxSize: 100, Retention: time.Hour, MaxMetadata: 100}
	s.g = New("g", &s.cfg, s.now)
	return s
}

// args are the arguments of a command.
type args struct{ scenariotest.Command }

// words are those without =.
func (a args) words() (out []string) {
	for _, w := range a.Args {
		if !strings.Contains(w, "=") {
			out = append(out, w)
		}
	}
	return out
}

func (a args) str(name, or string) string {
	if v, ok := a.Value(name); ok {
		return v
	}
	return or
}

func (a args) ref(name string) *string {
	if v, ok := a.Value(name); ok {
		return &v
	}
	return nil
}

func (a args) num(name string, or int) int {
	if _, ok := a.Value(name); !ok {
		return or
	}
	return int(a.Number(name))
}

func (s *script) duration(v string) time.Duration {
	d, err := time.ParseDuration(v)
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

func (s *script) millis(a args, name, or string) int32 {
	return int32(s.duration(a.str(name, or)).Milliseconds())
}

// do does one command.
func (s *script) do(a args) {
	switch a.Name {
	case "config": // delay= max= retention=
		s.cfg.InitialDelay = s.duration(a.str("delay", s.cfg.InitialDelay.String()))
		s.cfg.Retention = s.duration(a.str("retention", s.cfg.Retention.String()))
		s.cfg.MaxSize = a.num("max", s.cfg.MaxSize)
	case "join": // join NAME… [id= instance= v= session= rebalance= protocols= metadata= type=]
		for _, name := range a.words() {
			s.effects(s.g.Join(s.now, s.joinReq(a), Caller{Ticket: s.ticket(name), ClientID: a.str("client", "c"), Host: "/h", Unique: name}))
		}
	case "sync": // sync NAME id= gen= [instance= assign=member:bytes,…]
		s.effects(s.g.Sync(s.now, s.syncReq(a), s.ticket(a.words()[0])))
	case "heartbeat": // heartbeat MEMBER gen= [instance=]
		req := kmsg.NewPtrHeartbeatRequest()
		req.MemberID, req.Generation, req.InstanceID = a.words()[0], int32(a.num("gen", 0)), a.ref("instance")
		s.say("heartbeat %s: %s", a.words()[0], words(s.g.Heartbeat(s.now, req)))
	case "leave": // leave MEMBER… | leave instance=
		s.leave(a)
	case "commit": // commit [MEMBER] gen= [instance= offset= topic=]
		s.commit(a)
	case "advance": // advance DURATION, doing what is due on the way
		s.advance(s.duration(a.words()[0]))
	case "hold": // writes are kept until "written" or "failed"
		s.hold = true
	case "written":
		s.settle(nil)
	case "failed":
		s.settle(kerr.CoordinatorNotAvailable)
	case "reload": // another coordinator takes over, with what was written
		s.effects(s.g.Abandon(kerr.NotCoordinator))
		s.reload()
	case "expire":
		s.expire()
	case "delete":
		s.say("delete: %s", words(s.g.CheckDelete()))
	case "draw":
		s.draw()
	default:
		s.t.Fatalf("unknown command %q", a.Name)
	}
}

func (s *script) ticket(name string) Ticket {
	t := Ticket(len(s.names) + 1)
	s.names[t] = name
	return t
}

func (s *script) say(format string, args ...any) { fmt.Fprintf(&s.out, format+"\n", args...) }

func words(e *kerr.Error) string {
	if e == nil {
		return "ok"
	}
	return e.Message
}

func codeWords(code int16) string {
	e, _ := kerr.ErrorForCode(code).(*kerr.Error)
	return words(e)
}

func (s *script) joinReq(a args) *kmsg.JoinGroupRequest {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version = int16(a.num("v", 9))
	req.MemberID, req.InstanceID, req.ProtocolType = a.str("id", ""), a.ref("instance"), a.str("type", "consumer")
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = s.millis(a, "session", "10s"), s.millis(a, "rebalance", "20s")
	for name := range strings.SplitSeq(a.str("protocols", "range"), ",") {
		p := kmsg.NewJoinGroupRequestProtocol()
		p.Name = name
		meta := kmsg.NewConsumerMemberMetadata()
		meta.Topics = strings.Split(a.str("topics", "t"), ",")
		p.Metadata = meta.AppendTo(nil)
		if name != "" {
			req.Protocols = append(req.Protocols, p)
		}
	}
	return req
}

func (s *script) syncReq(a args) *kmsg.SyncGroupRequest {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Version = 5
	req.MemberID, req.InstanceID, req.Generation = a.str("id", ""), a.ref("instance"), int32(a.num("gen", 0))
	req.ProtocolType, req.Protocol = a.ref("type"), a.ref("protocol")
	if v := a.str("assign", ""); v != "" {
		for one := range strings.SplitSeq(v, ",") {
			id, what, _ := strings.Cut(one, ":")
			g := kmsg.NewSyncGroupRequestGroupAssignment()
			g.MemberID, g.MemberAssignment = id, []byte(what)
			req.GroupAssignment = append(req.GroupAssignment, g)
		}
	}
	return req
}

func (s *script) leave(a args) {
	var who []kmsg.LeaveGroupRequestMember
	for _, id := range a.words() {
		m := kmsg.NewLeaveGroupRequestMember()
		m.MemberID, m.InstanceID = id, a.ref("instance")
		who = append(who, m)
	}
	if len(who) == 0 {
		m := kmsg.NewLeaveGroupRequestMember()
		m.InstanceID = a.ref("instance")
		who = append(who, m)
	}
	answers, e := s.g.Leave(s.now, who)
	for _, r := range answers {
		s.say("leave %s: %s", r.MemberID, codeWords(r.ErrorCode))
	}
	s.effects(e)
}

func (s *script) commit(a args) {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Generation, req.InstanceID = int32(a.num("gen", -1)), a.ref("instance")
	if len(a.words()) > 0 {
		req.MemberID = a.words()[0]
	}
	err := s.g.CheckCommit(s.now, req)
	s.say("commit: %s", words(err))
	if err == nil {
		p := Partition{a.str("topic", "t"), 0}
		o := Offset{Offset: int64(a.num("offset", 0)), LeaderEpoch: -1, Committed: s.now}
		s.log = append(s.log, OffsetRecord("g", p, o))
		s.g.SetOffset(p, o)
	}
}

func (s *script) advance(d time.Duration) {
	until := s.now.Add(d)
	for {
		next, ok := s.g.NextDeadline()
		if !ok || next.After(until) {
			break
		}
		s.now = next
		s.effects(s.g.Tick(s.now))
	}
	s.now = until
}

// effects tells what an input has led to.
func (s *script) effects(e Effects) {
	for _, w := range e.Writes {
		if s.hold {
			s.say("write held")
			s.held = append(s.held, w)
			continue
		}
		s.say("write generation %d, %s", s.g.generation, s.g.state)
		s.write(w, nil)
	}
	for _, r := range e.Replies {
		name := s.names[r.To]
		if name == "" {
			s.t.Fatalf("ticket %d is answered twice", r.To)
		}
		s.names[r.To] = ""
		s.say("%s %s", s.at()+name+":", describeReply(r.Message))
	}
}

func (s *script) at() string {
	if d := s.now.Sub(s.start); d > 0 {
		return "[" + d.String() + "] "
	}
	return ""
}

func (s *script) write(w *Write, err *kerr.Error) {
	if err == nil {
		s.log = append(s.log, w.Records...)
	}
	s.effects(s.g.Written(s.now, w, err))
}

func (s *script) settle(err *kerr.Error) {
	s.hold = false
	held := s.held
	s.held = nil
	for _, w := range held {
		s.write(w, err)
	}
}

func describeReply(m kmsg.Response) string {
	switch r := m.(type) {
	case *kmsg.JoinGroupResponse:
		if r.ErrorCode != 0 {
			return strings.TrimSpace(fmt.Sprintf("%s %s", codeWords(r.ErrorCode), r.MemberID))
		}
		var ids []string
		for _, m := range r.Members {
			ids = append(ids, m.MemberID)
		}
		out := fmt.Sprintf("joined as %s, generation %d, %s, leader %s", r.MemberID, r.Generation, *r.Protocol, r.LeaderID)
		if ids != nil {
			out += " of " + strings.Join(ids, " ")
		}
		if r.SkipAssignment {
			out += ", nothing to assign"
		}
		return out
	case *kmsg.SyncGroupResponse:
		if r.ErrorCode != 0 {
			return codeWords(r.ErrorCode)
		}
		return fmt.Sprintf("synced, assigned %q", r.MemberAssignment)
	}
	return fmt.Sprintf("%T", m)
}

func (s *script) reload() {
	l := NewLoader(&s.cfg)
	for _, r := range s.log {
		e, err := Decode(r.Key, r.Value)
		if err != nil {
			s.t.Fatal(err)
		}
		l.Take(e)
	}
	g := l.Groups(s.now)["g"]
	if g == nil {
		g = New("g", &s.cfg, s.now)
	}
	s.g = g
	s.held = nil
}

func (s *script) expire() {
	expired, empty := s.g.Expire(s.now)
	slices.SortFunc(expired, func(a, b Partition) int { return strings.Compare(a.Topic, b.Topic) })
	var names []string
	for _, p := range expired {
		names = append(names, p.Topic)
		s.g.DeleteOffset(p)
	}
	s.say("expired [%s], nothing left %v", strings.Join(names, " "), empty)
}

func (s *script) draw() {
	g := s.g
	s.say("%s generation %d, %s %q, leader %s", g.state, g.generation, g.protocolType, g.protocol, g.leader)
	for _, m := range g.members {
		var b bytes.Buffer
		fmt.Fprintf(&b, "  %s %q", m.id, m.assignment)
		if m.instance != nil {
			fmt.Fprintf(&b, " static %s", *m.instance)
		}
		if m.joining != 0 {
			b.WriteString(" joining")
		}
		if m.syncing != 0 {
			b.WriteString(" syncing")
		}
		s.say("%s", b.String())
	}
	for _, p := range g.pending {
		s.say("  %s to come back", p.id)
	}
	for topic, ps := range g.offsets.byTopic {
		for p, o := range ps {
			s.say("  %s-%d at %d", topic, p, o.Offset)
		}
	}
}
