package isr

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"firn/replication/meta"
)

var update = flag.Bool("update", false, "write what comes out into testdata")

// TestFiles runs testdata/*.txt: commands, a line of dashes, and the state that
// they lead to, drawn. State goes on from block to block until the next new.
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
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no testdata", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) { runFile(t, file) })
	}
}

func runFile(t *testing.T, file string) {
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var m machine
	var out []string
	for block := range strings.SplitSeq(strings.TrimSpace(string(b)), "\n\n") {
		in, want, ok := strings.Cut(block, "\n----")
		if !ok {
			out = append(out, block) // a comment
			continue
		}
		got := m.run(t, in)
		if want = strings.Trim(want, "\n"); got != want && !*update {
			t.Errorf("%s\ngot:\n%s\nwant:\n%s", in, got, want)
		}
		out = append(out, in+"\n----\n"+got)
	}
	if *update {
		if err := os.WriteFile(file, []byte(strings.Join(out, "\n\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// machine is a tracker under test.
type machine struct {
	*Tracker
	rules Rules
}

func (m *machine) run(t *testing.T, in string) string {
	var out []string
	draw := true
	for line := range strings.SplitSeq(in, "\n") {
		f := strings.Fields(line)
		if len(f) == 0 || strings.HasPrefix(f[0], "#") {
			continue
		}
		args := f[1:]
		switch f[0] {
		case "new":
			m.rules = rules(t, args)
			m.Tracker = New(state(t, args), m.rules, number(t, value(args, "end")), number(t, value(args, "hw")))
		case "appended":
			m.Counted(number(t, args[0]))
		case "fetched":
			m.Fetched(members(t, args[0])[0], number(t, args[1]))
		case "join":
			m.Join(members(t, args[0])[0])
		case "refused":
			m.Refused(members(t, args[0])[0])
		case "committed":
			s := state(t, args)
			s.Leader = m.State().Leader
			m.Committed(s)
		case "rules":
			m.rules = rules(t, args)
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
			out, draw = append(out, fmt.Sprint(m.InSync(members(t, args[0])[0], number(t, args[1])))), false
		default:
			t.Fatalf("unknown command %q", line)
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

func state(t *testing.T, args []string) meta.PartitionState {
	s := meta.PartitionState{
		ISR:      members(t, value(args, "isr")),
		Eligible: members(t, value(args, "eligible")),
		Version:  int32(number(t, value(args, "version"))),
	}
	if l := members(t, value(args, "leader")); len(l) > 0 {
		s.Leader = l[0]
	} else if len(s.ISR) > 0 {
		s.Leader = s.ISR[0]
	}
	return s
}

func rules(t *testing.T, args []string) Rules {
	return Rules{MinInsync: int(number(t, value(args, "min"))), Replicas: int(number(t, value(args, "replicas")))}
}

func value(args []string, key string) string {
	for _, a := range args {
		if v, ok := strings.CutPrefix(a, key+"="); ok {
			return v
		}
	}
	return ""
}

func number(t *testing.T, s string) int64 {
	if s == "" {
		return 0
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func members(t *testing.T, s string) []meta.Member {
	var ms []meta.Member
	for f := range strings.SplitSeq(s, ",") {
		if f == "" {
			continue
		}
		id, epoch, _ := strings.Cut(f, "/")
		ms = append(ms, meta.Member{ID: int32(number(t, id)), Epoch: number(t, epoch)})
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
