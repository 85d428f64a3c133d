package tiering

import (
	"context"
	"errors"
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
//   - a manifest older than the pointer's, but for the one before it.
//
// Keys of higher epochs, and what doesn't parse, are never touched. Age only
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
	if err := l.a.owner(ctx); err != nil {
		return 0, err
	}
	// Names known before the listing thin it out: what was named then is no
	// orphan, and if it has become one since, the next sweep takes it.
	known, _, err := l.named(ctx, ld)
	if err != nil {
		return 0, err
	}
	var found []Key
	err = l.a.store.List(ctx, l.part.Dir(), func(o objstore.Object) error {
		k, ok := ParseKey(o.Key)
		if !ok || k.Partition != l.part || k.Epoch > ld.epoch || now.Sub(time.UnixMilli(o.ModTime)) < l.a.cfg.DeleteGrace {
			return nil
		}
		if k.Kind == KindManifest || !known.has(k.ID) {
			found = append(found, k)
		}
		return nil
	})
	if err != nil || len(found) == 0 {
		return 0, err
	}
	found = slices.DeleteFunc(found, func(k Key) bool { return k.Epoch == ld.epoch && ld.isLive(k.ID) })
	names, m, err := l.named(ctx, ld)
	if err != nil {
		return 0, err
	}
	for _, k := range found {
		if k.Kind == KindManifest && !l.outdated(ld, m, k) || k.Kind != KindManifest && names.has(k.ID) {
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

// outdated reports whether a manifest is older than the pointer's and its
// predecessor.
func (l *Log) outdated(ld *leadership, m *Manifest, k Key) bool {
	if m == nil { // no pointer: whoever put it is of a lower epoch, or it isn't live
		return true
	}
	if k.String() == ld.ptr.ManifestKey || k.String() == m.PrevKey {
		return false
	}
	return k.Epoch < m.Epoch || k.Epoch == m.Epoch && k.Seq < m.Seq
}

// idSet is sorted.
type idSet []uint64

func (s idSet) has(id uint64) bool {
	_, ok := slices.BinarySearch(s, id)
	return ok
}

// named collects the ids of all objects that the pointer, as read now, leads to.
// A page that can't be read is an error.
func (l *Log) named(ctx context.Context, ld *leadership) (idSet, *Manifest, error) {
	if err := l.pub.lock(ctx); err != nil {
		return nil, nil, err
	}
	defer l.pub.unlock()
	if err := l.readyLocked(ctx, ld); err != nil {
		return nil, nil, err
	}
	ptr, err := l.a.pointers.LoadPointer(ctx, l.part)
	if err != nil {
		return nil, nil, err
	}
	if ptr.ManifestKey != ld.ptr.ManifestKey {
		return nil, nil, fmt.Errorf("%w: the pointer was moved by another", ErrFenced)
	}
	m := ld.manifest
	if m == nil {
		return nil, nil, nil
	}
	var ids idSet
	for i := range m.Pages {
		ids = append(ids, m.Pages[i].ID)
		page, err := l.loadPage(ctx, &m.Pages[i])
		if err != nil {
			return nil, nil, errors.Join(fmt.Errorf("page %s can't be read", m.Pages[i].Key(l.part)), err)
		}
		for j := range page.Entries {
			ids = append(ids, page.Entries[j].ID)
		}
	}
	for i := range m.Entries {
		ids = append(ids, m.Entries[i].ID)
	}
	slices.Sort(ids)
	return ids, m, nil
}
