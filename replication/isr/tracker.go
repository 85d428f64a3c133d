package isr

import (
	"slices"

	"firn/replication/meta"
)

// Rules are what a topic asks of its in-sync replicas.
type Rules struct {
	// MinInsync is min.insync.replicas. 0 means 1.
	MinInsync int
	// Replicas is the number of replicas assigned. 0 means 1.
	Replicas int
	// Unclean: somebody who was not in sync may be elected. The tracker doesn't
	// ask; the leader's lease does.
	Unclean bool
}

// need is how many must be in sync for anything to be committed. A topic with
// fewer replicas than min.insync.replicas needs all of those that it has.
func (r Rules) need() int { return max(1, min(r.MinInsync, max(1, r.Replicas))) }

// Enough: n in sync are enough for anything to be committed.
func (r Rules) Enough(n int) bool { return n >= r.need() }

// Tracker follows the replicas of one partition for its leader.
type Tracker struct {
	rules Rules
	state meta.PartitionState
	// joining: asked to add, answer not known (R3).
	joining []meta.Member
	// ends[i] is how far a replica that has told so is, at most one per broker.
	ends []progress
	hw   int64
}

// progress is a replica's end, as one registration of its broker told it.
type progress struct {
	meta.Member
	end int64
}

// New begins a leadership: state is what elected us, counted our own counted
// end, and hw the high watermark that we knew as a follower.
func New(state meta.PartitionState, rules Rules, counted, hw int64) *Tracker {
	t := &Tracker{rules: rules, state: state, hw: hw}
	t.Counted(counted)
	return t
}

// SetRules takes other rules. Lower ones alone don't free the eligible: that
// takes a write, which the leader makes at once (R1, see Cleared).
func (t *Tracker) SetRules(r Rules) { t.rules = r; t.advance() }

// Committed takes the state as the store now has it, in the same leader epoch.
// One that is older than what is known is ignored.
func (t *Tracker) Committed(state meta.PartitionState) {
	if state.Version < t.state.Version {
		return
	}
	t.state = state
	t.joining = slices.DeleteFunc(t.joining, func(m meta.Member) bool {
		return slices.Contains(state.ISR, m)
	})
	t.advance()
}

// Join says that we are about to ask the store to add m; it counts from here (R3).
func (t *Tracker) Join(m meta.Member) {
	if !slices.Contains(t.joining, m) {
		t.joining = append(t.joining, m)
	}
}

// Refused says that the store has refused to add m for good: the outcome is
// known and m was not added (Z3).
func (t *Tracker) Refused(m meta.Member) {
	t.joining = slices.DeleteFunc(t.joining, func(x meta.Member) bool { return x == m })
	t.advance()
}

// Counted says how far the leader's own log counts (S6).
func (t *Tracker) Counted(end int64) { t.Fetched(t.state.Leader, end) }

// Fetched says that m's log ends at end, as m itself says. A new registration of
// a broker replaces what an older one told, for it may have lost some of it; an
// older one's word is ignored.
func (t *Tracker) Fetched(m meta.Member, end int64) {
	i := slices.IndexFunc(t.ends, func(p progress) bool { return p.ID == m.ID })
	switch {
	case i < 0:
		t.ends = append(t.ends, progress{m, end})
	case t.ends[i].Epoch > m.Epoch:
		return
	default:
		t.ends[i] = progress{m, end}
	}
	t.advance()
}

// HighWatermark is the end of what is committed.
func (t *Tracker) HighWatermark() int64 { return t.hw }

// Enough: the ISR is large enough for acks=all.
func (t *Tracker) Enough() bool { return t.rules.Enough(len(t.state.ISR)) }

// State is the state as last read back.
func (t *Tracker) State() meta.PartitionState { return t.state }

// Alone: the leader is all of ISR ∪ joining and nothing holds the high watermark
// back, so that what it counts is committed.
func (t *Tracker) Alone() bool {
	return len(t.state.ISR) == 1 && t.state.ISR[0] == t.state.Leader &&
		len(t.joining) == 0 && len(t.state.Eligible) == 0 && t.Enough()
}

// Others appends to dst the members other than the leader that could be elected,
// or are asked to be such: ISR ∪ joining ∪ eligible. One may come twice.
func (t *Tracker) Others(dst []meta.Member) []meta.Member {
	for _, set := range [3][]meta.Member{t.state.ISR, t.joining, t.state.Eligible} {
		for _, m := range set {
			if m.ID != t.state.Leader.ID {
				dst = append(dst, m)
			}
		}
	}
	return dst
}

// InSync: m may join the ISR. It must have reached the high watermark and the
// start of the leader's epoch: at the old high watermark alone it could still
// lack what an earlier leader committed (A4 in Kafka: KAFKA-7128).
func (t *Tracker) InSync(m meta.Member, epochStart int64) bool {
	e, ok := t.end(m)
	return ok && e >= t.hw && e >= epochStart
}

// advance moves the high watermark up to the lowest end of ISR ∪ joining. Below
// min ISR, or while an eligible member is left, it stands still (R1): what it
// would commit then could be lost with the last survivor.
func (t *Tracker) advance() {
	if !t.Enough() || len(t.state.Eligible) > 0 {
		return
	}
	low := int64(-1)
	for _, set := range [2][]meta.Member{t.state.ISR, t.joining} {
		for _, m := range set {
			e, ok := t.end(m)
			if !ok {
				return // a member that has not told anything may have nothing
			}
			if low < 0 || e < low {
				low = e
			}
		}
	}
	t.hw = max(t.hw, low)
}

func (t *Tracker) end(m meta.Member) (int64, bool) {
	for _, p := range t.ends {
		if p.Member == m {
			return p.end, true
		}
	}
	return 0, false
}
