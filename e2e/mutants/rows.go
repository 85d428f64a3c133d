package main

import (
	"slices"
)

// mutant is one way to be wrong.
type mutant struct {
	name, file, old, new string
	invariant            string
	layer                layer
	// says is in what the layer says of it: its failure is of this invariant.
	says string
}

// in makes layers of a package's tests.
func in(pkg string) func(tests ...string) layer {
	return func(tests ...string) layer { return unit(pkg, tests...) }
}

// mutants are all rows.
func mutants() []mutant {
	return slices.Concat(archiveMutants(), logMutants(), clusterMutants(), simulatedMutants(), processMutants())
}

// simulatedMutants show that the simulation sees what its invariants name. One
// seed in a hundred lets a leader of the past come by its fence: hence so
// many.
func simulatedMutants() []mutant {
	sim := process("env GOFLAGS=OVERLAY go test -count=1 -vet=off ./e2e/sim -run Mutant -seeds 400")
	return []mutant{
		{"simulation: swap-in-a-past-epoch", "broker/pointers.go", "if state.LeaderEpoch != epoch || state.Leader != self.Member() {", "if false && state.LeaderEpoch != epoch {", "T3", sim, "T3: "},
		{"simulation: drop-local-before-pointer", "tiering/evict.go", "bound = max(ptr.ArchivedEnd, ptr.LogStart)", "bound = l.local.Offsets().HighWatermark", "T4", sim, "T4: "},
		{"simulation: full-and-leading-on", "replication/controller/elect.go", "if now == willing {", "if now != draining {", "S4", sim, "its disk is full, and it leads on"},
	}
}

// processMutants show that the checker sees, on real processes, what is wrong.
func processMutants() []mutant {
	chaos := func(args string) layer { return process("go run ./e2e/chaos -brief -build OVERLAY -duration " + args) }
	kills, repeats, store := chaos("25s -seed 3 -faults cut-kill-leader"), chaos("15s -seed 3 -faults repeat-produces"), chaos("15s -seed 3 -brokers 1 -partitions 3 -faults store-down")
	return []mutant{
		{"processes: ack-before-replication", "replication/append.go", "case !p.Committed(a.Last):", "case false:", "R1", kills, "lost: partition"},
		{"processes: hw-is-leo", "replication/isr/tracker.go", "if low < 0 || e < low {", "if low < 0 || e > low {", "R1", kills, "lost: partition"},
		{"processes: no-dedup", "segment/append.go", "next := l.st.mu.End\n\tif o.Origin", "next := l.st.mu.End\n\to.Origin = OriginCoordinator\n\tif o.Origin", "E1", repeats, "duplicate: partition"},
		{"processes: drop-local-before-pointer", "tiering/evict.go", "bound = max(ptr.ArchivedEnd, ptr.LogStart)", "bound = l.local.Offsets().HighWatermark", "T4", store, "unreachable: partition"},
	}
}

// archiveMutants are tiering's.
func archiveMutants() []mutant {
	tiering, cache, meta := in("./tiering"), in("./tiering/cache"), in("./replication/meta")
	return []mutant{
		{"upload-at-leo", "tiering/upload.go", "case s.End > o.HighWatermark:\n\t\treturn nil, reasonCommit, nil\n\tcase s.End > o.Stable:", "case s.End > o.End:", "T1", tiering("TestOnlyWhatIsCommittedGoesUp"), "uncommitted data went up"},
		{"upload-open-transaction", "tiering/upload.go", "case s.End > o.Stable:", "case s.End > o.End:", "T1", tiering("TestAnOpenTransactionHoldsSegmentsBack"), "an open transaction went up"},
		{"upload-unsynced", "tiering/upload.go", "case !s.Synced:", "case false:", "T1", tiering("TestOnlyWhatIsDurableGoesUp"), "what no disk has durably went up"},
		{"overwrite-a-key", "tiering/upload.go", "ID: l.a.cfg.Random(), Epoch: ld.epoch, Aborted", "ID: 1, Epoch: ld.epoch, Aborted", "T2", tiering("TestEveryStoreFaultIsSurvived"), "is put a second time"},
		{"drop-local-before-pointer", "tiering/evict.go", "bound = max(ptr.ArchivedEnd, ptr.LogStart)", "bound = l.local.Offsets().HighWatermark", "T4", tiering("TestFollowerEvictsByThePointerAlone"), "evicted what the archive hasn't"},
		{"undo-by-read-back", "tiering/publish.go", "if ptr.Version == mv.next.Version {", "if false {", "Z3", tiering("TestReadBackProvesNothing"), "the late write got <nil>"},
		{"ignore-the-fence", "replication/meta/pointer.go", "CheckTopic(m.ID), checkState(m.Topic, m.Partition, m.StateVersion)}", "CheckTopic(m.ID)}", "T3 Z2", meta("TestStateIsFenced"), "got <nil>, want a conflict on /brokers/topics/t/partitions/0/state"},
		{"lead-behind-the-archive", "tiering/lead.go", "if o.End < ptr.ArchivedEnd {", "if false {", "T8", tiering("TestLogBehindTheArchiveStartsAgain"), "older copy: opened at"},
		{"lead-another-history", "tiering/lead.go", "have != ptr.LastEpoch {", "have < 0 {", "T8", tiering("TestOtherHistoryIsNotDiscardedByItself"), "led with another history: <nil>"},
		{"sweep-what-is-under-way", "tiering/sweep.go", "return k.Epoch == ld.epoch && ld.isLive(k.ID) })", "return false })", "T2", tiering("TestSweepGoesByEpoch"), "removed 10, <nil>; want 7"},
		{"serve-what-is-damaged", "tiering/cache/block.go", "if Sum(b[from:end]) != o.Units[(i*BlockSize+from)/UnitSize] {", "if false {", "T5", cache("TestFailuresAreToldApart"), "wrong bytes"},
		{"sweep-by-one-look", "tiering/sweep.go", "k.Kind != KindManifest && after.has(k.ID) {", "k.Kind != KindManifest && false {", "T2", tiering("TestSweepSeesWhatIsPublishedMeanwhile"), "objects that a manifest names by now"},
	}
}

// logMutants are the segments'.
func logMutants() []mutant {
	segment := in("./segment")
	return []mutant{
		{"no-dedup", "segment/append.go", "if a, ok := l.duplicateLocked(b); ok {", "if a, ok := l.duplicateLocked(b); ok && false {", "E1", segment("TestRepeatedBatchIsAnsweredWithItsFirstOffsets"), "batch 6 again"},
		{"dedup-window-of-one", "segment/producers.go", "const remembered = 5", "const remembered = 1", "E1", segment("TestRepeatedBatchIsAnsweredWithItsFirstOffsets"), "batch 2 again"},
		{"recovery-trusts-checksums", "segment/recover.go", "if err := batch.Verify(b); err != nil {", "if err := batch.Verify(b); err != nil && false {", "S1", segment("TestTornTail"), "log ends at"},
		{"append-garbled-records", "segment/batch/verify.go", "deltas, err := verifyRecords(b.Records(), int(b.Count()))", "deltas, err := Times{}, error(nil)", "S1", segment("TestGarbledRecordsAreRefused"), "garbled, to"},
		{"recovery-cuts-what-was-flushed", "segment/recover.go", "if r.next < o.recoveryPoint && o.known {", "if false {", "S5", segment("TestDamageBelowTheRecoveryPointQuarantines"), "flip in batch"},
		{"append-in-an-older-epoch", "segment/append.go", "o.Epoch < latest {", "o.Epoch < latest && false {", "R2", segment("TestEpochChain"), "append in an old epoch: <nil>"},
		{"go-on-after-a-failed-sync", "segment/flush.go", "l.failLocked(ErrFailed, fmt.Errorf(\"flush: %w\", err))", "_ = fmt.Errorf(\"flush: %w\", err)", "S4", segment("TestFailedSyncIsFinal"), "Flush: <nil>"},
		{"count-before-the-flush", "segment/flush.go", "w.Counted = max(w.Counted, min(l.mu.flushed, w.End))", "w.Counted = w.End", "S6", segment("TestFlushMessagesCountsTheRestAtOnce"), "the third waits"},
		{"replicate-an-older-epoch", "segment/append.go", "if bt.LeaderEpoch() < latest {", "if false {", "R2", segment("TestReplicaRefusesAnOlderEpoch"), "alone: <nil>"},
	}
}

// clusterMutants are those of replication, its metadata and the controller.
func clusterMutants() []mutant {
	isr, repl, ctl, meta := in("./replication/isr"), in("./replication"), in("./replication/controller"), in("./replication/meta")
	return []mutant{
		{"hw-is-leo", "replication/isr/tracker.go", "if low < 0 || e < low {", "if low < 0 || e > low {", "R1", isr("TestFiles"), "fetched 3 10\ngot:\nhw=20"},
		{"joining-not-counted", "replication/isr/tracker.go", "[2][]meta.Member{t.state.ISR, t.joining}", "[2][]meta.Member{t.state.ISR, nil}", "R3", isr("TestFiles"), "fetched 2 25\ngot:\nhw=25"},
		{"hw-below-min-isr", "replication/isr/tracker.go", "if !t.Enough() || len(t.state.Eligible) > 0 {", "if len(t.state.Eligible) > 0 {", "R1", isr("TestFiles"), "got:\nhw=10 enough=false"},
		{"hw-past-the-eligible", "replication/isr/tracker.go", "if !t.Enough() || len(t.state.Eligible) > 0 {", "if !t.Enough() {", "R1", isr("TestFiles"), "rules replicas=3 min=1\ngot:\nhw=10 enough=true"},
		{"join-short-of-the-epoch", "replication/isr/tracker.go", "e >= t.hw && e >= epochStart", "e >= t.hw", "A4", isr("TestFiles"), "insync 2/7 13\ngot:\ntrue"},
		{"an-older-life-counts", "replication/isr/tracker.go", "case t.ends[i].Epoch > m.Epoch:", "case false:", "R6", isr("TestFiles"), "fetched 2/6 12\ngot:"},
		{"ack-before-replication", "replication/append.go", "case !p.Committed(a.Last):", "case false:", "R1", repl("TestScenarios"), "got:\nappend 1: 0 to 0, acked true"},
		{"ack-below-min-isr", "replication/append.go", "case !r.enough:\n\t\treturn false, ErrNotEnoughReplicasAfterAppend", "case false:\n\t\treturn false, ErrNotEnoughReplicasAfterAppend", "A9", repl("TestMinInsync"), "Acked = true, <nil>, want false"},
		{"no-epoch-check", "replication/partition.go", "case v.Epoch != AnyEpoch && v.Epoch < r.epoch:", "case false:", "R2", repl("TestReadChecksTheEpoch"), "= <nil>, want replication: leader epoch is older than ours"},
		{"truncate-to-hw", "replication/replicate.go", "at, ok = cut(p.log, p.log.Offsets().End, theirs)", "at, ok = p.log.Offsets().HighWatermark, true", "R5", repl("TestScenarios"), "2 follows 1 in 2: 0..4 hw=4 e1@0"},
		{"take-what-diverges", "replication/fetcher_take.go", "if a.Diverging.Epoch >= 0 || a.Diverging.End >= 0 {", "if false {", "A3", repl("TestDivergingAnswerSaysNothingElse"), "the high watermark is 1"},
		{"fetch-before-the-flush", "replication/fetcher_ask.go", " || !w.unflushed.IsZero() {", " {", "S6", repl("TestALogThatCanNotFlushHoldsUpNothingButItself"), "want its end at 1"},
		{"follow-in-another-epoch", "replication/replicate.go", "if r.leading || r.epoch != epoch || r.leader == meta.NoLeader {", "if r.leading || r.leader == meta.NoLeader {", "R2", repl("TestWhatWasAskedInOneEpochIsNotDoneInAnother"), "Replicate: <nil>"},
		{"count-who-diverges", "replication/leader.go", "case end.Epoch < f.LastEpoch || end.End < f.Offset:", "case false:", "R5", repl("TestReplicaOfAnotherHistoryDoesNotCount"), "the high watermark is 2"},
		{"add-an-older-life", "replication/propose.go", "!ok || r.Epoch != w.Epoch || slices.Contains(s.ISR, w.Member)", "!ok || r.Epoch < 0 || slices.Contains(s.ISR, w.Member)", "A7", repl("TestScenarios"), "got:\npropose 1: isr=1/1,2/1 eligible= over 0"},
		{"unknown-is-refused", "replication/propose.go", "if !a.unknown {", "if true {", "Z3", repl("TestScenarios"), "append 1: 4 to 4, acked true"},
		{"serve-after-the-lease", "replication/lease.go", "return now < p.lease.until.Load() || now < p.vouched.Load()", "return now >= 0", "§5", repl("TestPastTheLeaseALeaderAnswersWhileEveryOtherMemberFollows"), "Read: <nil>, want an answer: false"},
		{"become-in-another-life", "replication/become.go", "leads := s.Leader == self", "leads := s.Leader.ID == self.ID", "R6", repl("TestOnlyTheLeaderOfTheEpochAppends"), "former registration (R6): Append = <nil>"},
		{"lead-on-after-a-bounce", "replication/controller/elect.go", "return ok && r.Epoch == l.Epoch && slices", "return ok && r.Epoch >= l.Epoch && slices", "R6", ctl("TestFiles"), "broker 3 epoch=3 from=1\ngot:\nnothing"},
		{"epoch-not-raised", "replication/controller/elect.go", "s := p.state\n\ts.LeaderEpoch++\n\tif in", "s := p.state\n\tif in", "R4", ctl("TestWhatDecideNeverDoes"), "epoch not raised by one"},
		{"full-and-leading-on", "replication/controller/elect.go", "if now == willing {", "if now != draining {", "S4", ctl("TestFiles"), "full 1\ngot:\nnothing"},
		{"the-eligible-forgotten", "replication/controller/elect.go", "if el := p.holding(s.Eligible); len(el) > 0 {", "if el := p.holding(s.Eligible); len(el) > 9 {", "R6", ctl("TestFiles"), "got:\nt-0 nobody to lead: leader=none epoch=8"},
		{"unclean-unasked", "replication/controller/elect.go", "if p.rules.Unclean || p.wished(meta.UncleanElection) {", "if true {", "R6", ctl("TestFiles"), "got:\nt-0 elected, unclean: leader=1/9 epoch=8"},
		{"any-crash-keeps-the-page-cache", "replication/meta/register.go", "r.BootID == in.BootID && in.BootID != \"\" &&", "true &&", "R6", meta("TestRegistrationKeepsWhatHolds"), "machine_crashed"},
		{"the-lost-not-listed", "replication/meta/register.go", "if len(in.Lost) > 0 {", "if false {", "S7", meta("TestRegisterListsWhatIsLost"), "lost, and not listed"},
		{"go-back-within-a-session", "replication/meta/image.go", "if state.Version != Missing && state.Rev < t.States[tp.Partition].Rev { // Z1", "if false {", "Z1", meta("TestImageNeverGoesBack"), "went back to"},
		{"clean-mark-of-another-disk", "replication/meta/register.go", "if r.Version == Missing || !clean && !crashed {", "if r.Version == Missing || !clean && r.Clean == nil && !crashed {", "C15", meta("TestRegistrationKeepsWhatHolds"), "a_log_directory_lacks_the_mark"},
	}
}
