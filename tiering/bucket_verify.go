package tiering

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"firn/tiering/objstore"
)

// VerifyOptions says what to verify. The zero value is all of the archive.
type VerifyOptions struct {
	// Topic, if not empty, is the only one to look at; Partitions, if not nil,
	// the only ones of it.
	Topic      string
	Partitions []int32
	// Workers is how many segments are read at a time; 0 means 4.
	Workers int
	// Progress, if set, is told after each segment. Calls don't overlap.
	Progress func(VerifyProgress)
}

// VerifyProgress is how far a partition's verification is.
type VerifyProgress struct {
	Partition       Partition
	Segments, Total int
	Bytes, OfBytes  int64
}

// VerifyReport is what Verify found.
type VerifyReport struct {
	Topics     int   `json:"topics"`
	Partitions int   `json:"partitions"`
	Segments   int   `json:"segments"`
	Bytes      int64 `json:"bytes"`
	Records    int64 `json:"records"`
	// Orphans are data objects and pages that the manifest does not name: what
	// a sweep will remove, or has just been uploaded. They are no problem.
	Orphans     int   `json:"orphans"`
	OrphanBytes int64 `json:"orphan_bytes"`
	Forks       int   `json:"forks"`
	// Problems are sorted by topic, partition and offset.
	Problems []Problem `json:"problems"`
}

// Verify reads every object that the archive serves from, and reports each that
// is missing or damaged, each batch that is not whole, and each hole. It goes on
// after a problem; an error is that of a store which can't be read now, and says
// nothing about the archive.
func (b *Bucket) Verify(ctx context.Context, o VerifyOptions) (VerifyReport, error) {
	v := verification{b: b, o: o}
	if v.o.Workers <= 0 {
		v.o.Workers = 4
	}
	if _, err := b.Identity(ctx); aboutObject(err) {
		v.add(Problem{Key: identityKey, What: err.Error()})
	} else if err != nil {
		return v.report, err
	}
	topics, err := b.Topics(ctx)
	if err != nil {
		return v.report, err
	}
	topics = slices.DeleteFunc(topics, func(t BucketTopic) bool { return t.Deleted })
	if err := Lacks(topics, o.Topic, o.Partitions); err != nil {
		return v.report, err
	}
	for i := range topics {
		t := &topics[i]
		if o.Topic != "" && t.Info.Name != o.Topic {
			continue
		}
		if err := v.topic(ctx, t); err != nil {
			return v.report, err
		}
	}
	slices.SortStableFunc(v.report.Problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Partition.Topic, b.Partition.Topic), cmp.Compare(a.Partition.Num, b.Partition.Num), cmp.Compare(a.From, b.From))
	})
	return v.report, nil
}

type verification struct {
	b      *Bucket
	o      VerifyOptions
	mu     sync.Mutex // guards report and the calls of Progress
	report VerifyReport
}

func (v *verification) add(p Problem) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.report.Problems = append(v.report.Problems, p)
}

func (v *verification) topic(ctx context.Context, t *BucketTopic) error {
	v.report.Topics++
	if !t.Described {
		v.add(t.undescribed())
	}
	for _, num := range t.Partitions {
		if v.o.Partitions != nil && !slices.Contains(v.o.Partitions, num) {
			continue
		}
		v.report.Partitions++
		if err := v.partition(ctx, t.Part(num)); err != nil {
			return err
		}
	}
	return nil
}

func (v *verification) partition(ctx context.Context, p Partition) error {
	bp, err := v.b.Partition(ctx, p)
	if err != nil {
		return err
	}
	v.report.Forks += len(bp.Forks)
	v.report.Problems = append(v.report.Problems, bp.Problems...)
	named := make(map[uint64]bool)
	progress := VerifyProgress{Partition: p}
	if bp.Manifest != nil {
		progress.Total, progress.OfBytes = bp.served()
		for i := range bp.Manifest.Pages {
			named[bp.Manifest.Pages[i].ID] = true
		}
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(v.o.Workers)
	c := continuity{v: v, bp: bp}
	for e, err := range v.b.Entries(gctx, bp) {
		var pe *PageError
		switch {
		case err == nil:
		case errors.As(err, &pe) && aboutObject(err):
			v.add(Problem{Partition: p, Key: pe.Key, From: pe.From, Below: pe.Below, What: reason(pe.Err)})
			c.skip(pe.Below)
			continue
		default:
			g.Wait()
			return err
		}
		named[e.ID] = true
		c.entry(e)
		if e.End <= bp.Manifest.LogStart {
			continue // deletable, perhaps deleted already
		}
		entry := *e
		g.Go(func() error {
			if err := v.segment(gctx, p, &entry); err != nil {
				return err
			}
			v.mu.Lock()
			defer v.mu.Unlock()
			v.report.Segments++
			v.report.Bytes += entry.Size
			v.report.Records += entry.Records
			progress.Segments, progress.Bytes = progress.Segments+1, progress.Bytes+entry.Size
			if v.o.Progress != nil {
				v.o.Progress(progress)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	c.end()
	before := v.report.Orphans
	if err := v.orphans(ctx, p, named); err != nil {
		return err
	}
	if n := v.report.Orphans - before; bp.Manifest == nil && n > 0 {
		v.add(Problem{Partition: p, What: fmt.Sprintf("has %d objects and no manifest: unless a broker is uploading the first segment of this partition right now, "+
			"its manifests are lost; `firn archive restore --rebuild` makes them anew of the indexes", n)})
	}
	return nil
}

// served is how many segments and bytes a manifest lists.
func (bp *BucketPartition) served() (n int, bytes int64) {
	m := bp.Manifest
	if !bp.United {
		for i := range m.Pages {
			n, bytes = n+int(m.Pages[i].Count), bytes+m.Pages[i].Bytes
		}
	}
	entries := m.Entries
	if bp.United {
		entries = bp.entries
	}
	for i := range entries {
		n, bytes = n+1, bytes+entries[i].Size
	}
	return n, bytes
}

// segment verifies the two objects of an entry.
func (v *verification) segment(ctx context.Context, p Partition, e *Entry) error {
	problem := func(key string, err error) error {
		if !aboutObject(err) {
			return err
		}
		v.add(Problem{Partition: p, Key: key, From: e.Base, Below: e.End, What: reason(err)})
		return nil
	}
	var blocks []uint32
	x, err := v.b.Index(ctx, p, e)
	switch {
	case err == nil:
		blocks = x.Blocks
	case problem(e.IndexKey(p), err) != nil:
		return err
	}
	var found scanned
	w := walker{s: &found}
	err = v.b.readSegment(ctx, p, e, blocks, func(off int64, block []byte) error {
		found.sum(block)
		if err := w.feed(block); err != nil {
			return fmt.Errorf("%w: at about %d of the file: %w", ErrCorrupt, off, err)
		}
		return nil
	})
	switch {
	case err != nil:
	case w.n > 0 || w.left > 0:
		err = fmt.Errorf("%w: ends inside a batch", ErrCorrupt)
	case found.Base < e.FileBase || found.End != e.End || found.Records != e.Records || found.BaseTime != e.BaseTime || found.MaxTime != e.MaxTime:
		err = fmt.Errorf("%w: holds offsets [%d, %d), %d records, times from %d, at most %d; its entry says [%d, %d), %d, %d, %d", ErrCorrupt,
			found.Base, found.End, found.Records, found.BaseTime, found.MaxTime, e.FileBase, e.End, e.Records, e.BaseTime, e.MaxTime)
	}
	if err != nil {
		return problem(e.LogKey(p), err)
	}
	if x != nil && x.Units != nil && !(slices.Equal(x.Units, found.Units) && slices.Equal(x.Starts, found.Starts)) {
		return problem(e.IndexKey(p), fmt.Errorf("%w: its checksums or starts of batches are not those of the segment", ErrCorrupt))
	}
	return nil
}

// reason is what to say of an object.
func reason(err error) string {
	if errors.Is(err, objstore.ErrNotFound) {
		return "missing"
	}
	return err.Error()
}

// continuity sees the entries pass: from the log start to the archived end
// there must be no hole.
type continuity struct {
	v     *verification
	bp    *BucketPartition
	begun bool
	at    int64 // where the next entry is to begin
	last  int32 // epoch of the offset before
}

func (c *continuity) entry(e *Entry) {
	start := c.bp.Manifest.LogStart
	switch {
	case !c.begun && e.Base > start:
		c.hole(start, e.Base)
	case c.begun && e.Base > c.at && e.Base > start:
		c.hole(max(c.at, start), e.Base)
	case c.begun && e.Base < c.at:
		c.v.add(Problem{Partition: c.bp.Partition, Key: e.LogKey(c.bp.Partition), From: e.Base, Below: c.at, What: "served by two entries"})
	}
	c.begun, c.at, c.last = true, e.End, e.LastEpoch()
}

// skip goes on behind a page that could not be read.
func (c *continuity) skip(to int64) { c.begun, c.at, c.last = true, to, -1 }

func (c *continuity) hole(from, below int64) {
	c.v.add(Problem{Partition: c.bp.Partition, From: from, Below: below, What: "no segment is archived for these offsets"})
}

func (c *continuity) end() {
	m := c.bp.Manifest
	if m == nil {
		return
	}
	if !c.begun {
		c.at = m.LogStart
	}
	if c.at < m.ArchivedEnd {
		c.hole(max(c.at, m.LogStart), m.ArchivedEnd)
	}
	if c.begun && c.at == m.ArchivedEnd && c.last >= 0 && c.last != m.LastEpoch {
		c.v.add(Problem{Partition: c.bp.Partition, Key: c.bp.Pointer.ManifestKey,
			What: fmt.Sprintf("says that the last offset has leader epoch %d, its entry says %d", m.LastEpoch, c.last)})
	}
}

// orphans counts what lies in the partition and is not named.
func (v *verification) orphans(ctx context.Context, p Partition, named map[uint64]bool) error {
	return v.b.store.List(ctx, p.Dir(), func(o objstore.Object) error {
		k, ok := ParseKey(o.Key)
		if ok && (k.Kind == KindLog || k.Kind == KindIndex || k.Kind == KindPage) && !named[k.ID] {
			v.report.Orphans++
			v.report.OrphanBytes += o.Size
		}
		return nil
	})
}
