package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"firn/replication"
	"firn/replication/meta"
	"firn/segment"
	"firn/tiering"
)

// seen is what the checks have seen of a replica so far.
type seen struct {
	r   *replica
	who string
	// hw is how far its log was compared; end, local and epoch are as of the last step.
	hw, end, local int64
	epoch          int32
	led            int32 // the last epoch in which it was seen to lead
	// leaderHW is its high watermark in that epoch.
	leaderHW int64
}

// check holds every replica that runs against the history and the metadata. All
// goroutines wait meanwhile.
func (w *world) check() {
	for _, m := range w.machines {
		p := m.proc
		if p == nil || p.dead() || !p.opened.Load() {
			continue
		}
		for _, r := range p.parts {
			w.checkReplica(p, r)
		}
	}
}

func (w *world) checkReplica(p *process, r *replica) {
	part := r.tp.Num
	s := w.seen[p.m.id][part]
	if s == nil || s.r != r {
		s = &seen{r: r, who: fmt.Sprintf("%s %v", p.name, r.tp), led: -1, epoch: -1}
		w.seen[p.m.id][part] = s
	}
	if r.local.Err() != nil {
		return // out of service (S4, S5)
	}
	o := r.local.Offsets()
	_, epoch, leads := r.part.Leader()
	who := s.who
	if epoch < s.epoch {
		w.fail("R2: %s went from epoch %d to %d", who, s.epoch, epoch)
	}
	s.epoch = epoch
	if !(o.LogStart <= o.HighWatermark && o.LocalStart <= o.End && o.HighWatermark <= o.Counted && o.Counted <= o.End) {
		w.fail("%s: offsets out of order: %+v", who, o)
	}
	if o.End < s.hw && o.LocalStart <= s.hw && o.End > o.LocalStart {
		w.fail("R5: %s was cut to %d, below what it knew as committed, %d", who, o.End, s.hw)
	}
	if end := w.history.end(part); o.End < end && !r.out() && slices.Contains(w.tree[part].state.ISR, p.self()) {
		w.fail("R1: %s is in the ISR with a log that ends at %d, committed is up to %d", who, o.End, end)
	}
	if o.LocalStart > s.local {
		w.checkLocalStart(who, part, o)
	}
	s.local, s.end = o.LocalStart, o.End
	if leads && s.led != epoch {
		w.checkLeader(who, r, o, epoch)
		s.led, s.leaderHW = epoch, o.HighWatermark
	}
	if leads {
		if o.HighWatermark < s.leaderHW {
			w.fail("%s: the high watermark went from %d to %d in epoch %d", who, s.leaderHW, o.HighWatermark, epoch)
		}
		if o.HighWatermark > s.leaderHW {
			w.checkReplicated(who, r, o.HighWatermark, epoch)
		}
		s.leaderHW = o.HighWatermark
	}
	s.hw = max(s.hw, o.LocalStart)
	if o.HighWatermark > s.hw {
		s.hw = w.compare(who, r, s.hw, o.HighWatermark, segment.UntilHighWatermark)
	}
}

// compare enters the records of a log in [from, below) into the history. It
// returns how far it came.
func (w *world) compare(who string, r *replica, from, below int64, until segment.Until) int64 {
	for from < below {
		res, err := r.local.Read(segment.ReadRequest{Offset: from, MaxBytes: 1 << 20, Until: until, MinOne: true})
		if errors.Is(err, segment.ErrOffsetOutOfRange) && from < res.Offsets.LogStart {
			from = res.Offsets.LogStart
			continue
		}
		if err != nil {
			w.fail("%s: reading %d: %v", who, from, err)
			return below
		}
		b := contents(&res.Records)
		next := from
		w.decode(who, b, func(offset int64, rec record) {
			if offset >= from && offset < below {
				w.history.commit(who, r.tp.Num, offset, rec)
				next = offset + 1
			}
		})
		if next == from {
			w.fail("%s: nothing at %d, below %d (S1)", who, from, below)
			return below
		}
		from = next
	}
	return from
}

// checkLocalStart: nothing leaves the disk before the pointer lets it (T4).
func (w *world) checkLocalStart(who string, part int32, o segment.Offsets) {
	ptr := w.tree[part].ptr
	allowed := max(ptr.ArchivedEnd, ptr.LogStart)
	if ptr.Sequence == 0 {
		allowed = max(allowed, o.LogStart) // without a pointer the leader's counts
	}
	if o.LocalStart > allowed {
		w.fail("T4: %s begins at %d on disk, the pointer lets go only what is below %d", who, o.LocalStart, allowed)
	}
}

// checkLeader: who leads has everything committed, on disk or in the archive.
func (w *world) checkLeader(who string, r *replica, o segment.Offsets, epoch int32) {
	part := r.tp.Num
	w.s.trace.note("check", "%s leads in epoch %d: %+v", who, epoch, o)
	end := w.history.end(part)
	if o.End < end {
		w.fail("R1: %s leads in epoch %d with a log that ends at %d, committed is up to %d", who, epoch, o.End, end)
		return
	}
	w.compare(who, r, max(o.LocalStart, o.LogStart), end, segment.UntilCounted)
	if s := w.tree[part].state; s.LeaderEpoch < epoch {
		w.fail("R4: %s leads in epoch %d, the state has %d", who, epoch, s.LeaderEpoch)
	}
}

// checkReplicated: what a leader has just called committed is on every member of
// the ISR that the metadata names (R1).
func (w *world) checkReplicated(who string, r *replica, hw int64, epoch int32) {
	part := r.tp.Num
	s := w.tree[part].state
	if s.LeaderEpoch != epoch {
		return // it is about to hear of another leader; then that one is checked
	}
	for _, m := range s.ISR {
		p := w.machines[m.ID].proc
		if p == nil || p.dead() || !p.opened.Load() || p.self() != m {
			continue
		}
		if other := p.parts[part]; !other.out() && other.local.Offsets().End < hw {
			w.fail("R1: %s has its high watermark at %d, member %v of the ISR ends at %d", who, hw, m, other.local.Offsets().End)
		}
	}
}

// checkAck: an acknowledgement needs an ISR that is large enough (R1).
func (w *world) checkAck(p *process, index int32, a replication.Appended) {
	r := p.parts[index]
	if hw := r.local.Offsets().HighWatermark; hw <= a.Last && r.local.Err() == nil {
		w.fail("R1: %s acknowledges %d-%d with its high watermark at %d", p.name, index, a.Last, hw)
	}
}

// checkOutOfRange: only what is before the log start is out of range, or past
// the end (T7).
func (w *world) checkOutOfRange(who string, part int32, at int64, o segment.Offsets, v replication.View) {
	ptr := w.tree[part].ptr
	if ptr.Sequence == 0 {
		ptr.LogStart = o.LogStart // of a log without a pointer the leader's counts
	}
	if at >= ptr.LogStart && at < o.HighWatermark {
		w.fail("T7: %s: offset %d of partition %d is out of range, the log is %d to %d (%+v)", who, at, part, ptr.LogStart, o.HighWatermark, o)
	}
}

// refusedSequence: a producer is refused only if something that it was promised
// is gone, or came in twice.
func (w *world) refusedSequence(part int32, id int64, sequence int32, to *machine) {
	w.fail("E1: %v refuses sequence %d of producer %d on partition %d: all before it was acknowledged", to, sequence, id, part)
}

// wroteState checks a change of a partition's state (R2, R4, R6).
func (w *world) wroteState(who string, part int32, before, after meta.PartitionState) {
	ctx := context.Background()
	registration := func(id int32) meta.Registration {
		r, err := meta.LoadRegistration(ctx, w.zk.eye, id)
		if err != nil {
			w.fail("R4: %v: broker %d: %v", after, id, err)
		}
		return r
	}
	if before.Version != meta.Missing {
		switch {
		case after.LeaderEpoch < before.LeaderEpoch, after.LeaderEpoch > before.LeaderEpoch+1:
			w.fail("R4: %s raised the leader epoch of partition %d from %d to %d", who, part, before.LeaderEpoch, after.LeaderEpoch)
		case after.LeaderEpoch == before.LeaderEpoch && after.Leader != before.Leader:
			w.fail("R4: %s changed the leader of partition %d from %v to %v in epoch %d", who, part, before.Leader, after.Leader, after.LeaderEpoch)
		}
	}
	if after.Leader == meta.NoLeader {
		return
	}
	if !slices.Contains(after.ISR, after.Leader) {
		w.fail("R4: leader %v of partition %d is not in its ISR %v", after.Leader, part, after.ISR)
	}
	for _, m := range after.ISR {
		if r := registration(m.ID); r.Epoch != m.Epoch {
			w.fail("R4: %s put %v into the ISR of partition %d, who is registered in epoch %d", who, m, part, r.Epoch)
		}
		if _, err := w.zk.eye.Get(ctx, meta.BrokerPath(m.ID)); err != nil {
			w.fail("R4: %s put %v into the ISR of partition %d, who is not registered", who, m, part)
		}
	}
	if before.Version == meta.Missing || after.LeaderEpoch == before.LeaderEpoch {
		return
	}
	w.counts.add("leader changes", 1)
	r := registration(after.Leader.ID)
	if !slices.ContainsFunc(before.ISR, r.Holds) && !slices.ContainsFunc(before.Eligible, r.Holds) {
		w.counts.add("unclean elections", 1)
		if !w.plan.unclean {
			w.fail("R6: %s elected %v for partition %d, of ISR %v, eligible %v, whose valid-from is %d", who, after.Leader, part, before.ISR, before.Eligible, r.ValidFrom)
		}
	}
}

// archived is what the checks know of a partition's archive.
type archived struct {
	ptr meta.Pointer
	// keys are the objects that the pointer leads to.
	keys map[string]bool
	// verified are entries that were held against the history, by id of their object.
	verified map[string]bool
}

// movedPointer checks the archive as a pointer names it: T1, T3, T6, T8.
func (w *world) movedPointer(who string, part int32, before, after meta.Pointer) {
	a := &w.archives[part]
	if after.Sequence < before.Sequence || after.LogStart < before.LogStart || after.ArchivedEnd < before.ArchivedEnd {
		w.fail("T3: %s moved the pointer of %d back: %+v, was %+v", who, part, after, before)
	}
	if end := w.history.end(part); after.ArchivedEnd > end {
		w.fail("T1: %s archived %d up to %d, committed is up to %d", who, part, after.ArchivedEnd, end)
	}
	a.ptr = after
	a.keys = map[string]bool{}
	if after.ManifestKey == "" {
		return
	}
	if after.Sequence > before.Sequence {
		w.counts.add("manifests", 1)
	}
	tp := tiering.Partition{Topic: topic, ID: tiering.TopicID(w.topicID), Num: part}
	raw, ok := w.object(after.ManifestKey)
	if !ok || int64(len(raw)) != after.ManifestSize || tiering.Checksum(raw) != after.ManifestCRC {
		w.fail("T3: the pointer of %d names %s, which is not there as it says", part, after.ManifestKey)
		return
	}
	m, err := tiering.DecodeManifest(raw)
	if err != nil {
		w.fail("T3: %s: %v", after.ManifestKey, err)
		return
	}
	if m.ArchivedEnd != after.ArchivedEnd || m.LogStart != after.LogStart || m.Seq != after.Sequence || m.LastEpoch != after.LastEpoch {
		w.fail("T3: manifest %+v, pointer %+v", m, after)
	}
	// D2: who has been replaced can't pass, however late its write arrives.
	if now := w.tree[part].state.LeaderEpoch; after.Sequence > before.Sequence && m.Epoch != now {
		w.fail("T3: %s moved the pointer of %d to a manifest of epoch %d, the partition is in epoch %d", who, part, m.Epoch, now)
	}
	a.keys[after.ManifestKey] = true
	var all []tiering.Entry
	for i := range m.Pages {
		key := m.Pages[i].Key(tp)
		raw, ok := w.object(key)
		if !ok {
			w.fail("T3: page %s is not there", key)
			return
		}
		page, err := tiering.DecodePage(raw)
		if err != nil {
			w.fail("T3: page %s: %v", key, err)
			return
		}
		a.keys[key] = true
		all = append(all, page.Entries...)
	}
	end := int64(-1)
	for i := range append(all, m.Entries...) {
		e := &append(all, m.Entries...)[i]
		if e.End <= m.LogStart {
			continue
		}
		if end < 0 && e.Base > m.LogStart || end >= 0 && e.Base != end {
			w.fail("T3: partition %d: an entry serves [%d, %d), the one before ends at %d, log start %d (D28)", part, e.Base, e.End, end, m.LogStart)
		}
		end = e.End
		w.checkEntry(tp, a, e)
	}
	if end < 0 {
		end = m.LogStart
	}
	if end != m.ArchivedEnd {
		w.fail("T8: partition %d: entries end at %d, the archived end is %d", part, end, m.ArchivedEnd)
	}
}

// checkEntry holds one archived segment against the history.
func (w *world) checkEntry(tp tiering.Partition, a *archived, e *tiering.Entry) {
	key := e.LogKey(tp)
	a.keys[key], a.keys[e.IndexKey(tp)] = true, true
	id := fmt.Sprintf("%s [%d,%d)", key, e.Base, e.End)
	if a.verified[id] {
		if !w.has(key) || !w.has(e.IndexKey(tp)) {
			w.fail("T3: %s is named and not there", key)
		}
		return
	}
	a.verified[id] = true
	w.counts.add("uploads", 1)
	raw, ok := w.object(key)
	if !ok || tiering.Checksum(raw) != e.LogCRC {
		w.fail("T3: %s is named and not there as it says", key)
		return
	}
	idx, ok := w.object(e.IndexKey(tp))
	if !ok {
		w.fail("T3: %s is named and not there", e.IndexKey(tp))
		return
	}
	x, err := tiering.DecodeIndex(idx)
	if err == nil {
		err = x.Check(tp, e)
	}
	if err != nil {
		w.fail("T6: %s: %v", e.IndexKey(tp), err)
	}
	next := e.Base
	w.decode(key, raw, func(offset int64, r record) {
		if offset >= e.Base && offset < e.End {
			if offset != next {
				w.fail("T6: %s: offset %d where %d is next", key, offset, next)
			}
			w.history.commit("archive "+key, tp.Num, offset, r)
			next = offset + 1
		}
	})
	if next != e.End {
		w.fail("T6: %s serves up to %d and ends at %d", key, e.End, next)
	}
}

func (w *world) object(key string) ([]byte, bool) {
	b, err := w.bucket.read(key)
	return b, err == nil
}

func (w *world) has(key string) bool {
	_, ok := w.object(key)
	return ok
}

// wroteObject: no key is written twice (T2), but what says whose it is.
func (w *world) wroteObject(who, key string) {
	if !strings.HasSuffix(key, ".json") && w.bucket.ever[key] {
		w.fail("T2: %s writes %s again", who, key)
	}
	w.bucket.ever[key] = true
}

// deletingObject: nothing that a pointer leads to is deleted (T4).
func (w *world) deletingObject(who, key string) {
	for part := range w.archives {
		if w.archives[part].keys[key] {
			w.fail("T4: %s deletes %s, which the pointer of partition %d leads to", who, key, part)
		}
	}
}
