package tiering

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// move is a pointer write on its way: the manifest that it names and what was
// put into the store for it.
type move struct {
	old, next Pointer // next.Version is the version that the write expects
	manifest  *Manifest
	keys      []string // of manifest and new pages, to be removed if it failed for good
	ids       []uint64 // of them, live until then
	dropped   []string // pages that the manifest doesn't name any more
	unused    []Entry  // uploads that the log start has passed before anything named them
}

// change is what a new manifest says besides the segments uploaded: offsets
// that only go up.
type change struct{ logStart, deletedThrough int64 }

// ready makes ld know the pointer for sure, and its manifest: it settles a write
// of unknown outcome and loads what the pointer names.
func (l *Log) ready(ctx context.Context, ld *leadership) error {
	if err := l.pub.lock(ctx); err != nil {
		return err
	}
	defer l.pub.unlock()
	return l.readyLocked(ctx, ld)
}

func (l *Log) readyLocked(ctx context.Context, ld *leadership) error {
	if ld.unsettled != nil {
		if err := l.settleLocked(ctx, ld); err != nil {
			return err
		}
	}
	if seen := l.view.Load().ptr; seen.Exists() && (!ld.ptr.Exists() || seen.Sequence > ld.ptr.Sequence) {
		// Evict, which reads the pointer for itself, has met a write that is not ours.
		return fmt.Errorf("%w: the pointer is at sequence %d, this epoch knows %d", ErrFenced, seen.Sequence, ld.ptr.Sequence)
	}
	if ld.ptr.Exists() && ld.manifest == nil {
		m, err := l.manifestOf(ctx, ld.ptr)
		if err != nil {
			return err
		}
		ld.manifest = m
	}
	return nil
}

// publishTimeout bounds the few small requests of a publication.
const publishTimeout = 2 * time.Minute

// publishDue publishes what is uploaded, and the retention that is due.
func (l *Log) publishDue(ctx context.Context, ld *leadership, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	if err := l.pub.lock(ctx); err != nil {
		return err
	}
	defer l.pub.unlock()
	if err := l.readyLocked(ctx, ld); err != nil {
		return err
	}
	start, err := l.retained(ctx, ld.manifest, now)
	if err != nil {
		l.a.log.Debug("retention waits: a page can't be read", "topic", l.part.Topic, "partition", l.part.Num, "err", err)
	}
	return l.publishLocked(ctx, ld, change{logStart: start}, now)
}

// publishLocked makes one manifest of the present one, the segments uploaded
// since, and c, and moves the pointer to it: the commit point (T3). ld is ready.
func (l *Log) publishLocked(ctx context.Context, ld *leadership, c change, now time.Time) error {
	if err := l.describeTopic(ctx, ld); err != nil {
		return err
	}
	m, unused, changed := l.nextManifest(ld, c)
	if !changed {
		return nil
	}
	mv := &move{old: ld.ptr, manifest: m, dropped: droppedPages(l.part, ld.manifest, m), unused: unused}
	err := l.putManifest(ctx, ld, mv)
	if err != nil {
		l.abandonLocked(ctx, ld, mv) // nothing names it, and the pointer was not touched
		return err
	}
	return l.movePointerLocked(ctx, ld, mv, now)
}

// nextManifest is the manifest after ld's, the uploads that it has no use for,
// and whether it says anything new.
func (l *Log) nextManifest(ld *leadership, c change) (m *Manifest, unused []Entry, changed bool) {
	prev := ld.manifest
	if prev == nil {
		start := l.local.Offsets().LogStart
		prev = &Manifest{LogStart: start, DeletedThrough: start, ArchivedEnd: start, LastEpoch: l.local.EpochAt(start - 1)}
	}
	m = &Manifest{
		Topic: l.part.ID, Partition: l.part.Num, Epoch: ld.epoch, Seq: ld.ptr.Sequence + 1,
		PrevKey: ld.ptr.ManifestKey, PrevCRC: ld.ptr.ManifestCRC,
		LogStart:       max(prev.LogStart, c.logStart, l.local.Offsets().LogStart),
		DeletedThrough: max(prev.DeletedThrough, c.deletedThrough),
		ArchivedEnd:    prev.ArchivedEnd, LastEpoch: prev.LastEpoch,
		Pages: slices.Clone(prev.Pages), Entries: slices.Clone(prev.Entries),
	}
	if !ld.ptr.Exists() {
		m.Seq = 1
	}
	added, unused := m.appendUploaded(ld.uploads())
	if m.LogStart > m.ArchivedEnd { // it takes the archived end along (T8)
		m.ArchivedEnd = m.LogStart
		m.LastEpoch = l.local.EpochAt(m.LogStart - 1)
	}
	m.dropDeleted()
	changed = added > 0 || m.LogStart > prev.LogStart || m.DeletedThrough > prev.DeletedThrough
	return m, unused, changed
}

func (ld *leadership) uploads() []Entry {
	ld.mu.Lock()
	defer ld.mu.Unlock()
	return slices.Clone(ld.mu.uploaded)
}

// appendUploaded adds entries where they go on. What was uploaded for offsets
// that the archived end has passed meanwhile, because the log start moved, is
// cut to what it still serves, or left out.
func (m *Manifest) appendUploaded(list []Entry) (added int, unused []Entry) {
	for _, e := range list {
		if e.End <= m.ArchivedEnd {
			unused = append(unused, e)
			continue
		}
		if e.Base < m.ArchivedEnd {
			e.Base = m.ArchivedEnd
			e.Epochs = epochsOf(e.Epochs, e.Base, e.End)
		}
		m.Entries = append(m.Entries, e)
		m.ArchivedEnd, m.LastEpoch = e.End, e.LastEpoch()
		added++
	}
	return added, unused
}

// dropDeleted removes the entries whose objects are deleted.
func (m *Manifest) dropDeleted() {
	for len(m.Pages) > 0 && m.Pages[0].End <= m.DeletedThrough {
		m.Pages = m.Pages[1:]
	}
	for len(m.Pages) == 0 && len(m.Entries) > 0 && m.Entries[0].End <= m.DeletedThrough {
		m.Entries = m.Entries[1:]
	}
}

func droppedPages(p Partition, prev, next *Manifest) (keys []string) {
	if prev == nil {
		return nil
	}
	for i := range prev.Pages[:len(prev.Pages)-min(len(prev.Pages), len(next.Pages))] {
		keys = append(keys, prev.Pages[i].Key(p))
	}
	return keys
}

// putManifest seals pages that are due and puts the manifest: all that the
// pointer will name is durable when it returns nil.
func (l *Log) putManifest(ctx context.Context, ld *leadership, mv *move) error {
	m := mv.manifest
	if err := l.a.failpoint("tiering.manifest.before"); err != nil {
		return err
	}
	put := func(key Key, object []byte) error {
		mv.keys, mv.ids = append(mv.keys, key.String()), append(mv.ids, key.ID)
		ld.track(key.ID)
		return l.a.store.Put(ctx, key.String(), bytes.NewReader(object), int64(len(object)))
	}
	for len(m.Entries) >= 2*PageEntries {
		page := &Page{Topic: m.Topic, Partition: m.Partition, Entries: m.Entries[:PageEntries:PageEntries]}
		object := page.AppendTo(nil)
		if err := verifyEncoding(object, DecodePage); err != nil {
			return err
		}
		ref := page.Ref(ld.epoch, l.a.cfg.Random(), object)
		if err := put(Key{Kind: KindPage, Partition: l.part, Base: ref.Base, Last: ref.End - 1, Epoch: ref.Epoch, ID: ref.ID}, object); err != nil {
			return fmt.Errorf("put page: %w", err)
		}
		if err := l.a.failpoint("tiering.page.after"); err != nil {
			return err
		}
		m.Pages, m.Entries = append(m.Pages, ref), m.Entries[PageEntries:]
	}
	object := m.AppendTo(nil)
	if err := verifyEncoding(object, DecodeManifest); err != nil { // before anything names it (D23)
		return err
	}
	key := Key{Kind: KindManifest, Partition: l.part, Epoch: m.Epoch, Seq: m.Seq, ID: l.a.cfg.Random()}
	mv.next = m.Pointer(key.String(), object)
	mv.next.Version = mv.old.Version
	if err := put(key, object); err != nil {
		return fmt.Errorf("put manifest: %w", err)
	}
	return l.a.failpoint("tiering.manifest.after")
}

func verifyEncoding[T any](object []byte, decode func([]byte) (T, error)) error {
	_, err := decode(object)
	return err
}

// movePointerLocked makes the compare-and-set. Its outcome is certain or noted
// as unsettled; only then is anything undone (Z3).
func (l *Log) movePointerLocked(ctx context.Context, ld *leadership, mv *move, now time.Time) error {
	err := l.a.failpoint("tiering.pointer.before")
	if err == nil && l.lead.Load() != ld {
		err = errNotLeading // and Lead, which waits for pub, counts on it
	}
	if err != nil {
		l.abandonLocked(ctx, ld, mv)
		return err
	}
	ptr, err := l.a.pointers.SwapPointer(ctx, l.part, ld.epoch, mv.next)
	switch {
	case err == nil:
		if err := l.a.failpoint("tiering.pointer.after"); err != nil {
			ld.unsettled = mv
			return err
		}
		return l.movedLocked(ctx, ld, mv, ptr, now)
	case errors.Is(err, ErrFenced):
		// Whoever leads now may have read the store; our objects are its sweep's.
		return fmt.Errorf("move pointer: %w", err)
	}
	// ErrMoved too: what moved it may be an earlier write of ours.
	ld.unsettled = mv
	l.a.metrics.unsettled.Inc()
	if serr := l.settleLocked(ctx, ld); serr != nil {
		return fmt.Errorf("move pointer: %w", errors.Join(err, serr))
	}
	if ld.ptr.ManifestKey == mv.next.ManifestKey {
		return nil
	}
	return fmt.Errorf("move pointer: %w", err)
}

// settleLocked finds out what became of ld.unsettled. Reading the old pointer
// back proves nothing, for the write may still be on its way: the pointer is
// written again as it is, which raises its version, and then the late write
// must fail (D26).
func (l *Log) settleLocked(ctx context.Context, ld *leadership) error {
	mv := ld.unsettled
	now := l.a.cfg.Now()
	ptr, err := l.loadPointer(ctx)
	if err != nil {
		return fmt.Errorf("settle: %w", err)
	}
	if ptr.ManifestKey == mv.next.ManifestKey {
		return l.movedLocked(ctx, ld, mv, ptr, now)
	}
	if ptr.Version == mv.next.Version {
		if ptr, err = l.raiseVersion(ctx, ld, ptr); err != nil {
			return fmt.Errorf("settle pointer: %w", err)
		}
		if ptr.ManifestKey == mv.next.ManifestKey {
			return l.movedLocked(ctx, ld, mv, ptr, now)
		}
	}
	// The version has passed the one that the write expects.
	ld.unsettled = nil
	l.abandonLocked(ctx, ld, mv)
	l.rereadLocked(ld, ptr)
	return nil
}

// raiseVersion writes the pointer again as it is.
func (l *Log) raiseVersion(ctx context.Context, ld *leadership, ptr Pointer) (Pointer, error) {
	if !ptr.Exists() {
		// There is no version to raise. An empty manifest would do, but the
		// pointer's first write can be tried again just as well: whichever of the
		// two lands makes the other fail.
		raised, err := l.a.pointers.SwapPointer(ctx, l.part, ld.epoch, ld.unsettled.next)
		if err == nil {
			return raised, nil
		}
		if errors.Is(err, ErrMoved) {
			return l.loadPointer(ctx)
		}
		return ptr, err
	}
	raised, err := l.a.pointers.SwapPointer(ctx, l.part, ld.epoch, ptr)
	if errors.Is(err, ErrMoved) { // the late write has landed just now
		return l.loadPointer(ctx)
	}
	return raised, err
}

// rereadLocked takes note of a pointer that is not the one we tried to write.
func (l *Log) rereadLocked(ld *leadership, ptr Pointer) {
	if ptr.ManifestKey != ld.ptr.ManifestKey {
		ld.manifest = nil
	}
	ld.ptr = ptr
	l.advance(ptr, ld.manifest)
}

// movedLocked takes note of a pointer write that has succeeded.
func (l *Log) movedLocked(ctx context.Context, ld *leadership, mv *move, ptr Pointer, now time.Time) error {
	ld.unsettled = nil
	m := mv.manifest
	if mv.old.Exists() && mv.manifest.PrevKey != "" && ld.manifest != nil && ld.manifest.PrevKey != "" {
		// The last two manifests stay: the one before those two goes.
		ld.useless = append(ld.useless, garbage{ld.manifest.PrevKey, now})
	}
	for _, key := range mv.dropped {
		ld.useless = append(ld.useless, garbage{key, now})
	}
	if n := len(ld.doomed); m.LogStart > m.DeletedThrough && (n == 0 || ld.doomed[n-1].logStart < m.LogStart) {
		ld.doomed = append(ld.doomed, doom{m.LogStart, now})
	}
	ld.ptr, ld.manifest = ptr, m
	ld.published(m, mv.ids)
	l.advance(ptr, m)
	for i := range mv.unused {
		l.discard(ctx, mv.unused[i].LogKey(l.part), mv.unused[i].IndexKey(l.part))
	}
	if l.local.Offsets().LogStart < m.LogStart {
		return l.local.SetLogStart(ctx, m.LogStart)
	}
	return nil
}

// published takes what m has passed out of the uploads: no attempt is live any
// more whose entry a manifest could still name.
func (ld *leadership) published(m *Manifest, ids []uint64) {
	ld.mu.Lock()
	defer ld.mu.Unlock()
	for _, id := range ids {
		delete(ld.mu.live, id)
	}
	left := ld.mu.uploaded[:0]
	for _, e := range ld.mu.uploaded {
		if e.End > m.ArchivedEnd {
			left = append(left, e)
		} else {
			delete(ld.mu.live, e.ID)
		}
	}
	clear(ld.mu.uploaded[len(left):])
	ld.mu.uploaded = left
}

// abandonLocked removes what was put for a pointer write that was never sent, or
// has failed for good. The segments stay uploaded: the next manifest names them.
func (l *Log) abandonLocked(ctx context.Context, ld *leadership, mv *move) {
	l.discard(ctx, mv.keys...)
	for _, id := range mv.ids {
		ld.untrack(id)
	}
}

// describeTopic makes topic.json say what it should, once in an epoch, before a
// manifest is published (T6).
func (l *Log) describeTopic(ctx context.Context, ld *leadership) error {
	if ld.described {
		return nil
	}
	t := TopicInfo{Name: l.part.Topic, ID: l.part.ID, Partitions: l.part.Num + 1}
	if l.cfg.Topic != nil {
		t = l.cfg.Topic()
	}
	if err := putTopic(ctx, l.a.store, t); err != nil {
		return fmt.Errorf("put topic.json: %w", err)
	}
	ld.described = true
	return nil
}
