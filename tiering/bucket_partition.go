package tiering

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"golang.org/x/sync/errgroup"

	"firn/tiering/objstore"
)

// BucketPartition is a partition as the bucket alone tells it.
type BucketPartition struct {
	Partition Partition
	// Manifest is the one that counts; nil if nothing was ever archived. If
	// there are several (see lineage) it is their union, which lies in no
	// object: United is true then, and Pointer's ManifestKey is empty.
	Manifest *Manifest
	Pointer  Pointer
	United   bool
	// Forks are the keys of manifests whose branches don't count.
	Forks []string
	// MaxEpoch and MaxSeq are the highest that a manifest has, -1 for none.
	MaxEpoch int32
	MaxSeq   int64
	// Problems are what is wrong with the manifests themselves.
	Problems []Problem

	entries []Entry // of a united manifest, those in pages included
	damaged int     // manifests that can't be decoded
	// prefer is the key and checksum of the first of several leaves.
	preferKey string
	preferCRC uint32
}

// Partition finds the manifest that counts. An object that can't be read now is
// an error: what it says may decide. One that is damaged is a Problem, and its
// predecessor counts instead.
func (b *Bucket) Partition(ctx context.Context, p Partition) (*BucketPartition, error) {
	bp := &BucketPartition{Partition: p, MaxEpoch: -1, MaxSeq: -1, Pointer: Pointer{LastEpoch: -1, Version: NoPointer}}
	nodes, err := b.manifests(ctx, bp)
	if err != nil {
		return nil, err
	}
	l := resolveLineage(nodes)
	bp.MaxEpoch, bp.MaxSeq = max(bp.MaxEpoch, l.maxEpoch), max(bp.MaxSeq, l.maxSeq)
	for _, n := range l.forks {
		bp.Forks = append(bp.Forks, n.key)
	}
	for _, n := range l.mismatched {
		bp.problem(n.key, "names a predecessor with another checksum than that has")
	}
	switch len(l.leaves) {
	case 0:
	case 1:
		n := l.leaves[0]
		bp.Manifest = n.Manifest
		bp.Pointer = Pointer{
			ManifestKey: n.key, ManifestSize: n.size, ManifestCRC: n.crc, Sequence: n.Seq,
			LastEpoch: n.LastEpoch, LogStart: n.LogStart, ArchivedEnd: n.ArchivedEnd, Version: NoPointer,
		}
	default:
		if err := b.unite(ctx, bp, l.leaves); err != nil {
			return nil, err
		}
	}
	return bp, nil
}

func (bp *BucketPartition) problem(key, what string) {
	bp.Problems = append(bp.Problems, Problem{Partition: bp.Partition, Key: key, What: what})
}

// manifests reads all manifests of a partition.
func (b *Bucket) manifests(ctx context.Context, bp *BucketPartition) ([]manifestNode, error) {
	type object struct {
		key  Key
		size int64
	}
	var found []object
	err := b.store.List(ctx, bp.Partition.Dir()+"manifest/", func(o objstore.Object) error {
		if k, ok := ParseKey(o.Key); ok && k.Kind == KindManifest {
			found = append(found, object{k, o.Size})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	nodes := make([]manifestNode, len(found))
	problems := make([]string, len(found))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(bucketReads)
	for i, o := range found {
		g.Go(func() error {
			n, err := b.manifest(gctx, bp.Partition, o.key)
			switch {
			case errors.Is(err, objstore.ErrNotFound): // deleted since it was listed
			case errors.Is(err, ErrCorrupt):
				problems[i] = err.Error()
			case err != nil:
				return err
			default:
				nodes[i] = n
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for i, what := range problems {
		if what != "" {
			bp.problem(found[i].key.String(), what)
			bp.damaged++
		}
		// Even one that can't be read has used its epoch and sequence.
		bp.MaxEpoch, bp.MaxSeq = max(bp.MaxEpoch, found[i].key.Epoch), max(bp.MaxSeq, found[i].key.Seq)
	}
	return slices.DeleteFunc(nodes, func(n manifestNode) bool { return n.Manifest == nil }), nil
}

func (b *Bucket) manifest(ctx context.Context, p Partition, k Key) (manifestNode, error) {
	object, err := getAll(ctx, b.store, k.String(), maxManifestSize)
	if err != nil {
		return manifestNode{}, err
	}
	m, err := DecodeManifest(object)
	if err != nil {
		return manifestNode{}, fmt.Errorf("%s: %w", k, err)
	}
	if m.Topic != p.ID || m.Partition != p.Num || m.Epoch != k.Epoch || m.Seq != k.Seq {
		return manifestNode{}, fmt.Errorf("%w: %s holds the manifest of %s-%d, epoch %d, sequence %d", ErrCorrupt, k, m.Topic, m.Partition, m.Epoch, m.Seq)
	}
	return manifestNode{key: k.String(), size: int64(len(object)), crc: Checksum(object), Manifest: m}, nil
}

// unite sets what the leaves of one epoch say together.
func (b *Bucket) unite(ctx context.Context, bp *BucketPartition, leaves []manifestNode) error {
	whole := make([]leaf, len(leaves))
	for i, n := range leaves {
		whole[i].Manifest = n.Manifest
		one := &BucketPartition{Partition: bp.Partition, Manifest: n.Manifest}
		entries, lost, err := b.known(ctx, one)
		if err == nil && lost {
			var r *rebuilder
			if r, err = b.rebuilder(ctx, bp.Partition); err == nil {
				entries, lost, err = r.pagesOf(ctx, one)
			}
			bp.Problems = append(bp.Problems, one.Problems...)
		}
		if err == nil && lost {
			err = fmt.Errorf("%w: %s names a page that is lost and can't be rebuilt; another manifest of its epoch may count too", ErrCorrupt, n.key)
		}
		if err != nil {
			return err
		}
		whole[i].all = entries
	}
	var failed error
	logStart, entries := unite(whole, func(e *Entry) bool {
		err := b.readable(ctx, bp.Partition, e)
		if err != nil && !errors.Is(err, objstore.ErrNotFound) && !errors.Is(err, ErrCorrupt) {
			failed = err // not now: that is no answer
		}
		return err == nil
	})
	if failed != nil {
		return failed
	}
	first := whole[0]
	m := &Manifest{
		Topic: bp.Partition.ID, Partition: bp.Partition.Num, Epoch: first.Epoch, Seq: bp.MaxSeq,
		LogStart: logStart, DeletedThrough: logStart, ArchivedEnd: max(logStart, first.ArchivedEnd), LastEpoch: first.LastEpoch,
	}
	if n := len(entries); n > 0 {
		m.LastEpoch = entries[n-1].LastEpoch()
		m.DeletedThrough = min(logStart, entries[0].Base)
	}
	bp.Manifest, bp.United, bp.entries = m, true, entries
	bp.preferKey, bp.preferCRC = leaves[0].key, leaves[0].crc
	bp.Pointer = Pointer{Sequence: m.Seq, LastEpoch: m.LastEpoch, LogStart: m.LogStart, ArchivedEnd: m.ArchivedEnd, Version: NoPointer}
	return nil
}

// readable reads an entry's index, and the first byte and the last of its
// segment: enough to know that a retention has not deleted it.
func (b *Bucket) readable(ctx context.Context, p Partition, e *Entry) error {
	if _, err := b.Index(ctx, p, e); err != nil {
		return err
	}
	for _, off := range []int64{e.Offset, e.Offset + e.Size - 1} {
		if err := objstore.ReadRange(ctx, b.store, e.LogKey(p), off, make([]byte, 1)); errors.Is(err, objstore.ErrRange) {
			return fmt.Errorf("%w: %s is shorter than its entry says", ErrCorrupt, e.LogKey(p))
		} else if err != nil {
			return err
		}
	}
	return nil
}

// Entries walks the entries of the manifest that counts, oldest first, reading
// pages as it goes. The pointer is good until the next step. After an error
// the walk goes on behind the page that could not be read.
func (b *Bucket) Entries(ctx context.Context, bp *BucketPartition) iter.Seq2[*Entry, error] {
	if !bp.United {
		return b.entriesOf(ctx, bp.Partition, bp.Manifest)
	}
	return func(yield func(*Entry, error) bool) {
		for i := range bp.entries {
			if !yield(&bp.entries[i], nil) {
				return
			}
		}
	}
}

// PageError is a page that could not be read: the entries of [From, Below) are unknown.
type PageError struct {
	Key         string
	From, Below int64
	Err         error
}

func (e *PageError) Error() string { return fmt.Sprintf("page %s: %v", e.Key, e.Err) }
func (e *PageError) Unwrap() error { return e.Err }

func (b *Bucket) entriesOf(ctx context.Context, p Partition, m *Manifest) iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		if m == nil {
			return
		}
		for i := range m.Pages {
			ref := &m.Pages[i]
			page, err := b.page(ctx, p, ref)
			if err != nil {
				if !yield(nil, &PageError{ref.Key(p), ref.Base, ref.End, err}) {
					return
				}
				continue
			}
			for j := range page.Entries {
				if !yield(&page.Entries[j], nil) {
					return
				}
			}
		}
		for i := range m.Entries {
			if !yield(&m.Entries[i], nil) {
				return
			}
		}
	}
}

func (b *Bucket) page(ctx context.Context, p Partition, ref *PageRef) (*Page, error) {
	object, err := getExact(ctx, b.store, ref.Key(p), ref.ObjectSize, ref.ObjectCRC)
	if err != nil {
		return nil, err
	}
	page, err := DecodePage(object)
	if err != nil {
		return nil, err
	}
	return page, page.Check(p, ref)
}

// Index reads and checks an entry's .idx object.
func (b *Bucket) Index(ctx context.Context, p Partition, e *Entry) (*Index, error) {
	if e.IdxSize > maxIndexSize {
		return nil, fmt.Errorf("%w: %s has %d bytes", ErrCorrupt, e.IndexKey(p), e.IdxSize)
	}
	object, err := getExact(ctx, b.store, e.IndexKey(p), e.IdxSize, e.IdxCRC)
	if err != nil {
		return nil, err
	}
	x, err := DecodeIndex(object)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.IndexKey(p), err)
	}
	return x, x.Check(p, e)
}
