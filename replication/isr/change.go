package isr

import (
	"slices"

	"firn/replication/meta"
)

// Shrunk is s without the brokers that leave. Those that leave an ISR which
// falls below what the rules need stay eligible: together with who remains they
// are the last that held everything committed (KIP-966).
func Shrunk(s meta.PartitionState, r Rules, leave ...int32) meta.PartitionState {
	var gone []meta.Member
	keep := make([]meta.Member, 0, len(s.ISR))
	for _, m := range s.ISR {
		if slices.Contains(leave, m.ID) {
			gone = append(gone, m)
		} else {
			keep = append(keep, m)
		}
	}
	s.ISR = keep
	if !r.Enough(len(keep)) {
		s.Eligible = without(s.Eligible, gone)
		s.Eligible = append(s.Eligible, gone...)
	}
	return s
}

// Grown is s with the members that join. An ISR that again has what the rules
// need frees the eligible: from here on it holds all that is committed (R1).
func Grown(s meta.PartitionState, r Rules, join ...meta.Member) meta.PartitionState {
	s.ISR = append(without(s.ISR, join), join...)
	s.Eligible = without(s.Eligible, join)
	if r.Enough(len(s.ISR)) {
		s.Eligible = nil
	}
	return s
}

// Cleared is s without its eligible members, where the rules no longer ask for
// more than the ISR has: the write that the leader makes at once when
// min.insync.replicas or the number of replicas falls (R1). ok: it is needed.
func Cleared(s meta.PartitionState, r Rules) (next meta.PartitionState, ok bool) {
	if len(s.Eligible) == 0 || !r.Enough(len(s.ISR)) {
		return s, false
	}
	s.Eligible = nil
	return s, true
}

// without is a copy of set without the brokers of gone, in whatever registration.
func without(set, gone []meta.Member) []meta.Member {
	return slices.DeleteFunc(slices.Clone(set), func(m meta.Member) bool {
		return slices.ContainsFunc(gone, func(g meta.Member) bool { return g.ID == m.ID })
	})
}
