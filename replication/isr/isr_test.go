package isr

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"firn/replication/meta"
	"firn/replication/scenariotest"
)

// TestFiles plays scenarios. What comes of a block is the state, drawn, which goes
// on until the next new.
//
//	new       leader=M isr=M,… eligible=M,… replicas=N min=N hw=N end=N
//	appended  END            the leader counts up to END
//	fetched   M END          a replica says where its log ends
//	join      M              we are about to ask to add it
//	refused   M              the store has refused to
//	committed version=N isr=M,… eligible=M,…
//	rules     replicas=N min=N
//	shrink    ID,…           what to propose without these
//	grow      M,…            what to propose with these
//	clear                    what to propose when less is asked for
//	insync    M START        may it join an epoch that began at START
//
// A member is written id/broker epoch, or id for epoch 0.
func TestFiles(t *testing.T) {
	scenariotest.Play(t, func(t *testing.T) func([]scenariotest.Command) string { return (&machine{t: t}).run })
}

// machine is a tracker under test.
type machine struct {
	*Tracker
	t     *testing.T
	rules Rules
}

func (m *machine) run(commands []scenariotest.Command) string {
	t := m.t
	var out []string
	draw := true
	for _, c := range commands {
		args := c.Args
		switch c.Name {
		case "new":
			m.rules = rules(c)
			m.Tracker = New(state(t, c), m.rules, c.Number("end"), c.Number("hw"))
		case "appended":
			m.Counted(scenariotest.Number(t, args[0]))
		case "fetched":
			m.Fetched(members(t, args[0])[0], scenariotest.Number(t, args[1]))
		case "join":
			m.Join(members(t, args[0])[0])
		case "refused":
			m.Refused(members(t, args[0])[0])
		case "committed":
			s := state(t, c)
			s.Leader = m.State().Leader
			m.Committed(s)
		case "rules":
			m.rules = rules(c)
			m.SetRules(m.rules)
		case "shrink":
			var ids []int32
			for _, l := range members(t, args[0]) {
				ids = append(ids, l.ID)
			}
			out, draw = append(out, propose(Shrunk(m.State(), m.rules, ids...))), false
		case "grow":
			out, draw = append(out, propose(Grown(m.State(), m.rules, members(t, args[0])...))), false
		case "clear":
			draw = false
			if s, ok := Cleared(m.State(), m.rules); ok {
				out = append(out, propose(s))
			} else {
				out = append(out, "nothing")
			}
		case "insync":
			out, draw = append(out, fmt.Sprint(m.InSync(members(t, args[0])[0], scenariotest.Number(t, args[1])))), false
		default:
			t.Fatalf("unknown command %q", c.Name)
		}
	}
	if draw {
		out = append(out, m.draw())
	}
	return strings.Join(out, "\n")
}

func propose(s meta.PartitionState) string {
	return fmt.Sprintf("propose isr=%s eligible=%s", text(s.ISR), text(s.Eligible))
}

func (m *machine) draw() string {
	var b strings.Builder
	fmt.Fprintf(&b, "hw=%d enough=%v alone=%v", m.HighWatermark(), m.Enough(), m.Alone())
	for _, p := range m.ends {
		role := "lagging"
		for name, set := range map[string][]meta.Member{"isr": m.state.ISR, "joining": m.joining, "eligible": m.state.Eligible} {
			for _, o := range set {
				if o == p.Member {
					role = name
				}
			}
		}
		fmt.Fprintf(&b, "\n%-5s %-20s %s", text([]meta.Member{p.Member}), strings.Repeat("=", int(p.end)), role)
	}
	return b.String()
}

func state(t *testing.T, c scenariotest.Command) meta.PartitionState {
	s := meta.PartitionState{
		ISR:      members(t, c.Text("isr")),
		Eligible: members(t, c.Text("eligible")),
		Version:  int32(c.Number("version")),
	}
	if l := members(t, c.Text("leader")); len(l) > 0 {
		s.Leader = l[0]
	} else if len(s.ISR) > 0 {
		s.Leader = s.ISR[0]
	}
	return s
}

func rules(c scenariotest.Command) Rules {
	return Rules{MinInsync: int(c.Number("min")), Replicas: int(c.Number("replicas"))}
}

func members(t *testing.T, s string) []meta.Member {
	var ms []meta.Member
	for f := range strings.SplitSeq(s, ",") {
		if f == "" {
			continue
		}
		id, epoch, _ := strings.Cut(f, "/")
		ms = append(ms, meta.Member{ID: int32(scenariotest.Number(t, id)), Epoch: scenariotest.Number(t, epoch)})
	}
	return ms
}

func text(ms []meta.Member) string {
	var f []string
	for _, m := range ms {
		s := strconv.Itoa(int(m.ID))
		if m.Epoch != 0 {
			s += "/" + strconv.FormatInt(m.Epoch, 10)
		}
		f = append(f, s)
	}
	return strings.Join(f, ",")
}
