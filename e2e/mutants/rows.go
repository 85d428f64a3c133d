package main

import (
	"slices"
	"strings"
)

// mutant is one way to be wrong.
type mutant struct {
	name, file, old, new string
	invariant            string
	layer                layer
}

func tests(packages, match string) layer { return layer{packages: packages, match: match} }

// mutants are all rows.
func mutants() []mutant {
	return slices.Concat(archiveMutants(), logMutants(), clusterMutants(), simulatedMutants(), processMutants())
}

// simulatedMutants show that the simulation sees what its invariants name.
func simulatedMutants() []mutant {
	sim := layer{command: strings.Fields("env GOFLAGS=OVERLAY go test -count=1 -vet=off ./e2e/sim -run Mutant -seeds 24")}
	return []mutant{
		{"simulation: swap-in-a-past-epoch", "broker/pointers.go", "if state.LeaderEpoch != epoch || state.Leader != self.Member() {", "if false && state.LeaderEpoch != epoch {", "D2", sim},
		{"simulation: drop-local-before-pointer", "tiering/evict.go", "bound = max(ptr.ArchivedEnd, ptr.LogStart)", "bound = l.local.Offsets().HighWatermark", "T4", sim},
	}
}

// processMutants show that the checker sees, on real processes, what is wrong.
func processMutants() []mutant {
	chaos := func(args string) layer {
		return layer{command: append([]string{"go", "run", "./e2e/chaos", "-brief", "-build", "OVERLAY", "-duration"}, strings.Fields(args)...)}
	}
	kills, repeats, store := chaos("25s -seed 3 -faults cut-kill-leader"), chaos("15s -seed 3 -faults repeat-produces"), chaos("15s -seed 3 -brokers 1 -partitions 3 -faults store-down")
	return []mutant{
		{"processes: ack-before-replication", "replication/append.go", "case !p.Committed(a.Last):", "case false:", "R1", kills},
		{"processes: hw-is-leo", "replication/isr/tracker.go", "if low < 0 || e < low {", "if low < 0 || e > low {", "R1", kills},
		{"processes: no-dedup", "segment/append.go", "next := l.st.mu.End\n\tif o.Origin", "next := l.st.mu.End\n\to.Origin = OriginCoordinator\n\tif o.Origin", "E1", repeats},
		{"processes: drop-local-before-pointer", "tiering/evict.go", "bound = max(ptr.ArchivedEnd, ptr.LogStart)", "bound = l.local.Offsets().HighWatermark", "T4", store},
	}
}

// archiveMutants are tiering's.
func archiveMutants() []mutant {
	meta := tests("./replication/meta", "")
	here := func(match string) layer { return tests("./tiering", match) }
	return []mutant{
		{"upload-at-leo", "tiering/upload.go", "case s.End > o.HighWatermark:", "case s.End > o.End:", "T1", here("OnlyWhatIsCommitted")},
		{"upload-open-transaction", "tiering/upload.go", "case s.End > o.Stable:", "case s.End > o.End:", "T1", here("AnOpenTransaction")},
		{"upload-unsynced", "tiering/upload.go", "case !s.Synced:", "case false:", "T1", here("Sealed|PowerLoss|Simulation")},
		{"overwrite-a-key", "tiering/upload.go", "ID: l.a.cfg.Random(), Epoch: ld.epoch, Aborted", "ID: 1, Epoch: ld.epoch, Aborted", "T2", here("EveryStoreFault|EveryPointerFault|Zombie")},
		{"drop-local-before-pointer", "tiering/evict.go", "bound = max(ptr.ArchivedEnd, ptr.LogStart)", "bound = l.local.Offsets().HighWatermark", "T4", here("FollowerEvicts")},
		{"undo-by-read-back", "tiering/publish.go", "if ptr.Version == mv.next.Version {", "if false {", "Z3", here("ReadBackProvesNothing")},
		{"ignore-the-fence", "replication/meta/pointer.go", "CheckTopic(m.ID), CheckState(m.Topic, m.Partition, m.StateVersion)}", "CheckTopic(m.ID)}", "T3", meta},
		{"lead-behind-the-archive", "tiering/lead.go", "if o.End < ptr.ArchivedEnd {", "if false {", "T8", here("LogBehind")},
		{"lead-another-history", "tiering/lead.go", "have != ptr.LastEpoch {", "have < 0 {", "T8", here("OtherHistory")},
		{"sweep-what-is-under-way", "tiering/sweep.go", "return k.Epoch == ld.epoch && ld.isLive(k.ID) })", "return false })", "T2", here("Sweep")},
		{"sweep-by-one-look", "tiering/sweep.go", "k.Kind != KindManifest && after.has(k.ID) {", "k.Kind != KindManifest && false {", "T2", here("Sweep")},
	}
}

// logMutants are the segments'.
func logMutants() []mutant {
	here := tests("./segment", "")
	return []mutant{
		{"no-dedup", "segment/append.go", "if a, ok := l.duplicateLocked(b); ok {", "if a, ok := l.duplicateLocked(b); ok && false {", "E1", here},
		{"dedup-window-of-one", "segment/producers.go", "const remembered = 5", "const remembered = 1", "E1", here},
		{"recovery-trusts-checksums", "segment/recover.go", "if err := batch.Verify(b); err != nil {", "if err := batch.Verify(b); err != nil && false {", "S1", here},
		{"recovery-cuts-what-was-flushed", "segment/recover.go", "if r.next < o.recoveryPoint && o.known {", "if false {", "S5", here},
		{"append-in-an-older-epoch", "segment/append.go", "o.Epoch < latest {", "o.Epoch < latest && false {", "R2", here},
		{"replicate-an-older-epoch", "segment/append.go", "if bt.LeaderEpoch() < latest {", "if false {", "R2", here},
	}
}

// clusterMutants are those of replication, its metadata and the controller.
func clusterMutants() []mutant {
	isr, repl, ctl, meta := tests("./replication/isr", ""), tests("./replication", ""), tests("./replication/controller", ""), tests("./replication/meta", "")
	return []mutant{
		{"hw-is-leo", "replication/isr/tracker.go", "if low < 0 || e < low {", "if low < 0 || e > low {", "R1", isr},
		{"joining-not-counted", "replication/isr/tracker.go", "[2][]meta.Member{t.state.ISR, t.joining}", "[2][]meta.Member{t.state.ISR, nil}", "R3", isr},
		{"hw-below-min-isr", "replication/isr/tracker.go", "if !t.Enough() || len(t.state.Eligible) > 0 {", "if len(t.state.Eligible) > 0 {", "R1", isr},
		{"hw-past-the-eligible", "replication/isr/tracker.go", "if !t.Enough() || len(t.state.Eligible) > 0 {", "if !t.Enough() {", "R1", isr},
		{"join-short-of-the-epoch", "replication/isr/tracker.go", "e >= t.hw && e >= epochStart", "e >= t.hw", "A4", isr},
		{"an-older-life-counts", "replication/isr/tracker.go", "case t.ends[i].Epoch > m.Epoch:", "case false:", "R6", isr},
		{"ack-before-replication", "replication/append.go", "case !p.Committed(a.Last):", "case false:", "R1", repl},
		{"ack-below-min-isr", "replication/append.go", "case !r.enough:\n\t\treturn false, ErrNotEnoughReplicasAfterAppend", "case false:\n\t\treturn false, ErrNotEnoughReplicasAfterAppend", "A9", repl},
		{"no-epoch-check", "replication/partition.go", "case v.Epoch != AnyEpoch && v.Epoch < r.epoch:", "case false:", "R2", repl},
		{"truncate-to-hw", "replication/replicate.go", "at, ok = cut(p.log, p.log.Offsets().End, theirs)", "at, ok = p.log.Offsets().HighWatermark, true", "R5", repl},
		{"take-what-diverges", "replication/fetcher_take.go", "case a.Diverging.Epoch >= 0 || a.Diverging.End >= 0:", "case false:", "A3", repl},
		{"follow-in-another-epoch", "replication/replicate.go", "if r.leading || r.epoch != epoch || r.leader == meta.NoLeader {", "if r.leading || r.leader == meta.NoLeader {", "R2", repl},
		{"count-who-diverges", "replication/leader.go", "case end.Epoch < f.LastEpoch || end.End < f.Offset:", "case false:", "R5", repl},
		{"add-an-older-life", "replication/propose.go", "!ok || r.Epoch != w.Epoch || slices.Contains(s.ISR, w.Member)", "!ok || r.Epoch < 0 || slices.Contains(s.ISR, w.Member)", "A7", repl},
		{"unknown-is-refused", "replication/propose.go", "if !a.unknown {", "if true {", "Z3", repl},
		{"serve-after-the-lease", "replication/lease.go", "return now < p.lease.until.Load() || now < p.vouched.Load()", "return now >= 0", "§5", repl},
		{"become-in-another-life", "replication/become.go", "leads := s.Leader == self", "leads := s.Leader.ID == self.ID", "R6", repl},
		{"lead-on-after-a-bounce", "replication/controller/elect.go", "return ok && r.Epoch == l.Epoch && slices", "return ok && r.Epoch >= l.Epoch && slices", "R6", ctl},
		{"epoch-not-raised", "replication/controller/elect.go", "s := p.state\n\ts.LeaderEpoch++\n\tif in", "s := p.state\n\tif in", "R4", ctl},
		{"the-eligible-forgotten", "replication/controller/elect.go", "if el := p.holding(s.Eligible); len(el) > 0 {", "if el := p.holding(s.Eligible); len(el) > 9 {", "R6", ctl},
		{"unclean-unasked", "replication/controller/elect.go", "if p.rules.Unclean || p.wished(meta.UncleanElection) {", "if true {", "R6", ctl},
		{"any-crash-keeps-the-page-cache", "replication/meta/register.go", "r.BootID == in.BootID && in.BootID != \"\" &&", "true &&", "R6", meta},
		{"clean-mark-of-another-disk", "replication/meta/register.go", "if r.Version == Missing || !clean && !crashed {", "if r.Version == Missing || !clean && r.Clean == nil && !crashed {", "C15", meta},
	}
}
