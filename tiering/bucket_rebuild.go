package tiering

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"

	"firn/tiering/objstore"
)

// rebuilder makes manifest entries of .idx objects: a pair of .log and .idx says
// everything that an entry does (T6). It is for a restore that finds a page or a
// manifest lost. Any pair may serve, named or not: only what was committed is
// ever uploaded (T1), so two pairs that hold the same offset hold the same record.
type rebuilder struct {
	b       *Bucket
	p       Partition
	indexes []Key // by base, then epoch
	sizes   map[Key]int64
	read    map[Key]*Entry // nil: unusable
}

func (b *Bucket) rebuilder(ctx context.Context, p Partition) (*rebuilder, error) {
	r := &rebuilder{b: b, p: p, sizes: make(map[Key]int64), read: make(map[Key]*Entry)}
	err := b.store.List(ctx, p.Dir(), func(o objstore.Object) error {
		k, ok := ParseKey(o.Key)
		switch {
		case ok && k.Kind == KindLog:
			r.sizes[k] = o.Size
		case ok && k.Kind == KindIndex:
			r.indexes = append(r.indexes, k)
		}
		return nil
	})
	slices.SortFunc(r.indexes, func(a, b Key) int {
		return cmp.Or(cmp.Compare(a.Base, b.Base), cmp.Compare(a.Epoch, b.Epoch))
	})
	return r, err
}

// nearby is how many pairs that begin at or before an offset are looked at for
// one that holds it: those of replicas with other borders, and attempts that failed.
const nearby = 16

// holding finds a pair that holds offset, the one that goes furthest; nil if
// there is none.
func (r *rebuilder) holding(ctx context.Context, offset int64) (*Entry, error) {
	n, _ := slices.BinarySearchFunc(r.indexes, offset, func(k Key, offset int64) int {
		if k.Base <= offset {
			return -1
		}
		return 1
	})
	var best *Entry
	for i := n - 1; i >= max(0, n-nearby); i-- {
		e, err := r.entry(ctx, r.indexes[i])
		if err != nil {
			return nil, err
		}
		if e != nil && e.End > offset && (best == nil || e.End > best.End) {
			best = e
		}
	}
	return best, nil
}

// entry makes an entry of a pair, nil if the pair is not whole.
func (r *rebuilder) entry(ctx context.Context, k Key) (*Entry, error) {
	if e, done := r.read[k]; done {
		return e, nil
	}
	r.read[k] = nil
	object, err := getAll(ctx, r.b.store, k.String(), maxIndexSize)
	if aboutObject(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	x, err := DecodeIndex(object)
	log := k
	log.Kind = KindLog
	if err != nil || x.Topic != r.p.ID || x.Partition != r.p.Num || x.FileBase != k.Base || r.sizes[log] != x.Size {
		return nil, nil
	}
	e := &Entry{
		Base: x.FileBase, End: x.End, FileBase: x.FileBase, ObjectBase: x.FileBase, BaseTime: x.BaseTime, MaxTime: x.MaxTime,
		Size: x.Size, Records: x.Records, ID: k.ID, Epoch: k.Epoch, Aborted: x.Aborted,
		LogCRC: x.LogCRC, IdxCRC: Checksum(object), IdxSize: int64(len(object)), Epochs: x.EpochsOf(x.FileBase, x.End),
	}
	r.read[k] = e
	return e, nil
}

// run makes entries for [from, below), as far as there are pairs without a
// hole; the last may go further.
func (r *rebuilder) run(ctx context.Context, from, below int64) ([]Entry, error) {
	var list []Entry
	for at := from; at < below; {
		e, err := r.holding(ctx, at)
		if err != nil || e == nil {
			return list, err
		}
		list = append(list, serveFrom(*e, at))
		at = e.End
	}
	return list, nil
}

// serveFrom makes e serve from base on, which it serves already or holds.
func serveFrom(e Entry, base int64) Entry {
	e.Epochs = epochsOf(e.Epochs, base, e.End)
	e.Base = base
	return e
}

// mend makes what a manifest lists whole again where a page of it is lost, a
// newer manifest is damaged, or none is left. It tells in bp.Problems what it
// did; what it can't mend it leaves. A partition without any manifest has most
// likely never had one, but only uploads that came to nothing: nothing says
// there is something to mend, unless fromNothing does.
func (b *Bucket) mend(ctx context.Context, bp *BucketPartition, fromNothing bool) error {
	entries, lost, err := b.known(ctx, bp)
	if err != nil || !lost && bp.damaged == 0 && (bp.Manifest != nil || !fromNothing) {
		return err
	}
	r, err := b.rebuilder(ctx, bp.Partition)
	if err != nil {
		return err
	}
	if bp.Manifest == nil {
		return r.fromNothing(ctx, bp)
	}
	if lost {
		var mended bool
		if entries, mended, err = r.pages(ctx, bp); err != nil || !mended {
			return err // reads there answer with an error, as the pages say (T7)
		}
	}
	if bp.damaged > 0 {
		more, err := r.run(ctx, bp.Manifest.ArchivedEnd, math.MaxInt64)
		if err != nil {
			return err
		}
		if len(more) > 0 {
			bp.rebuilt(more[0].Base, more[len(more)-1].End)
		}
		entries = append(entries, more...)
	}
	bp.become(entries)
	return nil
}

// known collects what bp lists, and whether a page of it is lost.
func (b *Bucket) known(ctx context.Context, bp *BucketPartition) (entries []Entry, lost bool, err error) {
	for e, err := range b.Entries(ctx, bp) {
		var pe *PageError
		switch {
		case errors.As(err, &pe) && aboutObject(err):
			lost = true
		case err != nil:
			return nil, false, err
		default:
			entries = append(entries, *e)
		}
	}
	return entries, lost, nil
}

// pagesOf is pages, which tells what is still lost.
func (r *rebuilder) pagesOf(ctx context.Context, bp *BucketPartition) (entries []Entry, lost bool, err error) {
	entries, mended, err := r.pages(ctx, bp)
	return entries, !mended, err
}

// pages rebuilds the pages that are lost, all or none.
func (r *rebuilder) pages(ctx context.Context, bp *BucketPartition) (entries []Entry, mended bool, err error) {
	at := int64(-1)
	for e, err := range r.b.Entries(ctx, bp) {
		var pe *PageError
		if errors.As(err, &pe) && aboutObject(err) {
			from := max(pe.From, at)
			list, err := r.run(ctx, from, pe.Below)
			if err != nil {
				return nil, false, err
			}
			if n := len(list); n == 0 || list[n-1].End < pe.Below {
				return nil, false, nil
			}
			bp.rebuilt(from, pe.Below)
			entries = append(entries, list...)
			at = list[len(list)-1].End
			continue
		}
		if err != nil {
			return nil, false, err
		}
		if e.End <= at {
			continue // a rebuilt one holds it too
		}
		next := *e
		if e.Base < at {
			next = serveFrom(next, at)
		}
		entries = append(entries, next)
		at = e.End
	}
	return entries, true, nil
}

// fromNothing makes the manifest of a partition that has lost all of them. A
// manifest has no holes, so it begins behind the last one.
func (r *rebuilder) fromNothing(ctx context.Context, bp *BucketPartition) error {
	var entries []Entry
	for i := 0; i < len(r.indexes); {
		list, err := r.run(ctx, r.indexes[i].Base, math.MaxInt64)
		if err != nil {
			return err
		}
		next := r.indexes[i].Base + 1
		if n := len(list); n > 0 {
			if len(entries) > 0 {
				bp.Problems = append(bp.Problems, Problem{Partition: bp.Partition, From: entries[0].Base, Below: list[0].Base,
					What: "not restored: no manifest is left, and what the indexes tell has a hole behind it"})
			}
			entries, next = list, list[n-1].End
		}
		for i < len(r.indexes) && r.indexes[i].Base < next {
			i++
		}
	}
	if len(entries) == 0 {
		return nil
	}
	bp.Manifest = &Manifest{
		Topic: bp.Partition.ID, Partition: bp.Partition.Num, Epoch: max(bp.MaxEpoch, 0), Seq: max(bp.MaxSeq, 0),
		LogStart: entries[0].Base, DeletedThrough: entries[0].Base,
	}
	bp.rebuilt(entries[0].Base, entries[len(entries)-1].End)
	bp.become(entries)
	return nil
}

func (bp *BucketPartition) rebuilt(from, below int64) {
	bp.Problems = append(bp.Problems, Problem{Partition: bp.Partition, From: from, Below: below, What: "what the manifests said of it is lost; rebuilt from the indexes"})
}

// become makes bp list entries, in a manifest that lies in no object yet.
func (bp *BucketPartition) become(entries []Entry) {
	m := *bp.Manifest
	m.Pages, m.Entries = nil, nil
	if n := len(entries); n > 0 {
		m.ArchivedEnd, m.LastEpoch = max(m.LogStart, entries[n-1].End), entries[n-1].LastEpoch()
		m.DeletedThrough = min(m.LogStart, max(m.DeletedThrough, 0))
	}
	if !bp.United {
		bp.preferKey, bp.preferCRC = bp.Pointer.ManifestKey, bp.Pointer.ManifestCRC
	}
	bp.Manifest, bp.United, bp.entries = &m, true, entries
	bp.Pointer = Pointer{Sequence: m.Seq, LastEpoch: m.LastEpoch, LogStart: m.LogStart, ArchivedEnd: m.ArchivedEnd, Version: NoPointer}
}
