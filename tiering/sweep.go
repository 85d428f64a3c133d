package tiering

import (
	"context"
	"fmt"
	"slices"
	"time"

	"firn/tiering/objstore"
)

// Sweep removes the partition's orphans: objects of attempts that died. It goes
// by epoch, not by age (D4). First the listing, then what is live here, then
// pointer, manifest and pages, all in this epoch: whatever was put meanwhile is
// either live, named, or not in the listing. Garbage is
//
//   - a .log, .idx or page key of a lower epoch that neither the manifest nor
//     a page of it names: its uploader can't pass the fence any more;
//   - one of this epoch that is neither live nor named;
//   - a manifest older than the pointer's, but for the one before it: of a
//     lower epoch once this one is older than the grace, of this one if it is
//     neither live nor waits for its grace already (deleteUseless);
//   - the parts of an upload of either that its process didn't finish.
//
// Keys of higher epochs, what a restore keeps, and what doesn't parse, are never touched. Age only
// delays, for the sake of readers that found an object while it was named.
func (l *Log) Sweep(ctx context.Context, now time.Time) (removed int, err error) {
	ld := l.lead.Load()
	if ld == nil {
		return 0, nil
	}
	ctx, done := ld.join(ctx)
	defer done()
	removed, err = l.sweep(ctx, ld, now)
	if err != nil {
		err = fmt.Errorf("tiering: sweep %s: %w", l.part, err)
	}
	return removed, err
}

func (l *Log) sweep(ctx context.Context, ld *leadership, now time.Time) (removed int, err error) {
	if err := l.a.Owner(ctx); err != nil {
		return 0, err
	}
	id, err := LoadIdentity(ctx, l.a.store)
	if err != nil {
		return 0, err
	}
	// Names known before the listing thin it out: what was named then is no
	// orphan, and if it has become one since, the next sweep takes it.
	before, err := l.named(ctx, ld, nil)
	if err != nil {
		return 0, err
	}
	l.abortIncomplete(ctx, ld, id)
	var found []Key
	err = l.a.store.List(ctx, l.part.Dir(), func(o objstore.Object) error {
		k, ok := ParseKey(o.Key)
		if !ok || k.Partition != l.part || k.Epoch > ld.epoch || k.Epoch < id.KeepBelow || now.Sub(time.UnixMilli(o.ModTime)) < l.a.cfg.DeleteGrace {
			return nil
		}
		if k.Kind == KindManifest || !before.has(k.ID) {
			found = append(found, k)
		}
		return nil
	})
	if err != nil || len(found) == 0 {
		return 0, err
	}
	found = slices.DeleteFunc(found, func(k Key) bool { return k.Epoch == ld.epoch && ld.isLive(k.ID) })
	after, err := l.named(ctx, ld, before)
	if err != nil {
		return 0, err
	}
	for _, k := range found {
		if k.Kind == KindManifest && !after.outdated(k, now.Sub(ld.began) >= l.a.cfg.DeleteGrace) || k.Kind != KindManifest && after.has(k.ID) {
			continue
		}
		if err := l.a.failpoint("tiering.sweep.delete"); err != nil {
			return removed, err
		}
		if err := l.a.store.Delete(ctx, k.String()); err != nil {
			return removed, err
		}
		removed++
		l.a.metrics.swept.Inc()
		l.a.log.Info("orphan removed from the archive", "topic", l.part.Topic, "partition", l.part.Num, "key", k.String())
	}
	return removed, nil
}

// abortIncomplete removes the parts of uploads whose process died (D18): of a
// lower epoch, or of this one and not live. Nothing can name them, so age doesn't
// matter, and a failure only costs space.
func (l *Log) abortIncomplete(ctx context.Context, ld *leadership, id Identity) {
	n, err := objstore.AbortIncomplete(ctx, l.a.store, l.part.Dir(), func(key string) bool {
		k, ok := ParseKey(key)
		return !ok || k.Partition != l.part || k.Epoch > ld.epoch || k.Epoch < id.KeepBelow || k.Epoch == ld.epoch && ld.isLive(k.ID)
	})
	switch {
	case n > 0:
		l.a.log.Info("unfinished uploads removed from the archive", "topic", l.part.Topic, "partition", l.part.Num, "uploads", n)
	case err != nil:
		l.a.log.Debug("unfinished uploads can't be removed; the next sweep tries again", "topic", l.part.Topic, "partition", l.part.Num, "err", err)
	}
}

// names is what the pointer leads to, as read at one moment.
type names struct {
	ids      []uint64 // of all objects, sorted
	ptr      Pointer
	manifest *Manifest // nil without pointer
	waiting  []string  // manifests that deleteUseless will take
}

func (n *names) has(id uint64) bool {
	_, ok := slices.BinarySearch(n.ids, id)
	return ok
}

// outdated reports whether a manifest may go. Without a pointer none may.
func (n *names) outdated(k Key, ruled bool) bool {
	m := n.manifest
	if m == nil || k.String() == n.ptr.ManifestKey || k.String() == m.PrevKey {
		return false
	}
	if k.Epoch == m.Epoch {
		return k.Seq < m.Seq && !slices.Contains(n.waiting, k.String())
	}
	return k.Epoch < m.Epoch && ruled
}

// named collects what the pointer, as read now, leads to; without the entries of
// pages that before has them of, for pages never change. A page that can't be
// read is an error.
func (l *Log) named(ctx context.Context, ld *leadership, before *names) (*names, error) {
	if err := l.pub.lock(ctx); err != nil {
		return nil, err
	}
	defer l.pub.unlock()
	if err := l.readyLocked(ctx, ld); err != nil {
		return nil, err
	}
	ptr, err := l.a.pointers.LoadPointer(ctx, l.part)
	if err != nil {
		return nil, err
	}
	if ptr.ManifestKey != ld.ptr.ManifestKey {
		return nil, fmt.Errorf("%w: the pointer was moved by another", ErrFenced)
	}
	n := &names{ptr: ptr, manifest: ld.manifest}
	for _, g := range ld.useless {
		n.waiting = append(n.waiting, g.key)
	}
	if n.manifest == nil {
		return n, nil
	}
	add := func(list []Entry) {
		for i := range list {
			n.ids = append(n.ids, list[i].ID)
		}
	}
	for i := range n.manifest.Pages {
		ref := &n.manifest.Pages[i]
		n.ids = append(n.ids, ref.ID)
		if before != nil && before.has(ref.ID) {
			continue
		}
		page, err := l.loadPage(ctx, ref)
		if err != nil {
			return nil, fmt.Errorf("page %s can't be read: %w", ref.Key(l.part), err)
		}
		add(page.Entries)
	}
	add(n.manifest.Entries)
	slices.Sort(n.ids)
	return n, nil
}
