package tiering

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"firn/tiering/objstore"
)

// CopyOptions says how to copy. The zero value is right.
type CopyOptions struct {
	// Workers is how many objects are copied at a time; 0 means 4.
	Workers int
	// Spool is the directory in which objects wait between the two stores;
	// empty means the system's temporary directory. It needs room for as many
	// segments as there are workers.
	Spool string
	// Progress, if set, is told after each object. Calls don't overlap.
	Progress func(CopyReport)
}

// CopyReport is what Copy did so far.
type CopyReport struct {
	Copied int   `json:"copied"` // objects
	Bytes  int64 `json:"bytes"`
	// Kept are objects that were there already.
	Kept int `json:"kept"`
	// Gone are objects that the source lost meanwhile: its broker's retention.
	Gone int `json:"gone"`
	// Problems are objects that are damaged at the source; they were copied as
	// they are.
	Problems []Problem `json:"problems,omitempty"`
}

// Copy copies an archive from one store to another: of each partition the data
// first, then its pages, then its manifests; then topic.json; firn.json last,
// which makes an archive of it. So a copy that was interrupted is none yet, and
// the next run goes on with what is missing. Every object is verified on its way.
//
// The source may be in use: what is archived meanwhile is left to another run.
// The copy has the same owner; only one of the two may be written to.
func Copy(ctx context.Context, from, to objstore.Store, o CopyOptions) (CopyReport, error) {
	if o.Workers <= 0 {
		o.Workers = 4
	}
	c := copying{from: from, to: to, o: o}
	owner, err := getAll(ctx, from, identityKey, maxJSON)
	if err != nil {
		return c.report, fmt.Errorf("tiering: copy: read the source's firn.json: %w", err)
	}
	if _, err := decodeIdentity(owner); err != nil {
		return c.report, err
	}
	if err := c.mayWrite(ctx, owner); err != nil {
		return c.report, err
	}
	topics, err := objstore.Folders(ctx, from, "")
	if err != nil {
		return c.report, err
	}
	for _, dir := range topics {
		if _, ok := ParseKey(dir + "/topic.json"); !ok {
			continue // not ours, or a probe's
		}
		if err := c.topic(ctx, dir+"/"); err != nil {
			return c.report, err
		}
	}
	now, err := getAll(ctx, from, identityKey, maxJSON)
	if err != nil {
		return c.report, err
	}
	if !bytes.Equal(now, owner) {
		return c.report, fmt.Errorf("%w: it changed hands while it was copied; start again", ErrNotOurs)
	}
	if err := to.Create(ctx, identityKey, owner); err != nil && !errors.Is(err, objstore.ErrExists) {
		return c.report, err
	}
	return c.report, nil
}

type copying struct {
	from, to objstore.Store
	o        CopyOptions

	mu     sync.Mutex // guards report and the calls of Progress
	report CopyReport
}

// mayWrite refuses a destination that is something else than an earlier run's.
func (c *copying) mayWrite(ctx context.Context, owner []byte) error {
	have, err := getAll(ctx, c.to, identityKey, maxJSON)
	switch {
	case errors.Is(err, objstore.ErrNotFound):
	case err != nil:
		return err
	case !bytes.Equal(have, owner):
		return fmt.Errorf("%w: the destination has a firn.json of its own: copy to an empty prefix", ErrNotOurs)
	}
	topics, err := objstore.Folders(ctx, c.to, "")
	if err != nil {
		return err
	}
	ours, err := objstore.Folders(ctx, c.from, "")
	if err != nil {
		return err
	}
	for _, dir := range topics {
		if _, ok := ParseKey(dir + "/topic.json"); ok && !slices.Contains(ours, dir) {
			return fmt.Errorf("%w: the destination holds %s, which the source does not: copy to an empty prefix", ErrNotOurs, dir)
		}
	}
	return nil
}

func (c *copying) topic(ctx context.Context, dir string) error {
	parts, err := objstore.Folders(ctx, c.from, dir)
	if err != nil {
		return err
	}
	for _, num := range parts {
		if err := c.partition(ctx, dir+num+"/"); err != nil {
			return err
		}
	}
	for _, name := range []string{"topic.json", "deleted.json"} {
		b, err := getAll(ctx, c.from, dir+name, maxJSON)
		if errors.Is(err, objstore.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		// topic.json changes with the topic's configs: what the source says now holds.
		have, err := getAll(ctx, c.to, dir+name, maxJSON)
		if err == nil && bytes.Equal(have, b) {
			c.done(func(r *CopyReport) { r.Kept++ })
			continue
		}
		if err := c.put(ctx, dir+name, bytes.NewReader(b), int64(len(b))); err != nil {
			return err
		}
	}
	return nil
}

// listing is a partition's objects by kind, as the source lists them.
type listing struct {
	logs, indexes, pages, manifests []objstore.Object
}

func (c *copying) partition(ctx context.Context, dir string) error {
	// Manifests first: what one of them names was there before it.
	var l listing
	if err := c.list(ctx, dir+"manifest/", func(k Key, o objstore.Object) {
		if k.Kind == KindManifest {
			l.manifests = append(l.manifests, o)
		}
	}); err != nil {
		return err
	}
	err := c.list(ctx, dir, func(k Key, o objstore.Object) {
		switch k.Kind {
		case KindLog:
			l.logs = append(l.logs, o)
		case KindIndex:
			l.indexes = append(l.indexes, o)
		case KindPage:
			l.pages = append(l.pages, o)
		}
	})
	if err != nil {
		return err
	}
	have := make(map[string]int64)
	err = c.to.List(ctx, dir, func(o objstore.Object) error { have[o.Key] = o.Size; return nil })
	if err != nil {
		return err
	}
	if err := c.each(ctx, have, l.indexes, c.small); err != nil {
		return err
	}
	if err := c.each(ctx, have, l.logs, c.log); err != nil {
		return err
	}
	if err := c.each(ctx, have, l.pages, c.small); err != nil {
		return err
	}
	return c.each(ctx, have, l.manifests, c.small)
}

func (c *copying) list(ctx context.Context, prefix string, found func(Key, objstore.Object)) error {
	return c.from.List(ctx, prefix, func(o objstore.Object) error {
		if k, ok := ParseKey(o.Key); ok {
			found(k, o)
		}
		return nil
	})
}

// each copies the objects that are not there yet.
func (c *copying) each(ctx context.Context, have map[string]int64, objects []objstore.Object, one func(context.Context, Key, objstore.Object) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(c.o.Workers)
	for _, o := range objects {
		size, there := have[o.Key]
		if there && size != o.Size {
			g.Wait()
			return fmt.Errorf("tiering: copy: %s has %d bytes at the source and %d at the destination: copy to an empty prefix", o.Key, o.Size, size)
		}
		if there {
			c.done(func(r *CopyReport) { r.Kept++ })
			continue
		}
		g.Go(func() error {
			k, _ := ParseKey(o.Key)
			err := one(ctx, k, o)
			if errors.Is(err, errGone) {
				c.done(func(r *CopyReport) { r.Gone++ })
				return nil
			}
			return err
		})
	}
	return g.Wait()
}

var errGone = errors.New("tiering: copy: object is gone from the source")

// done counts.
func (c *copying) done(count func(*CopyReport)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	count(&c.report)
	if c.o.Progress != nil {
		c.o.Progress(c.report)
	}
}

func (c *copying) put(ctx context.Context, key string, body io.ReaderAt, size int64) error {
	if err := c.to.Put(ctx, key, body, size); err != nil {
		return fmt.Errorf("tiering: copy %s: %w", key, err)
	}
	c.done(func(r *CopyReport) { r.Copied++; r.Bytes += size })
	return nil
}

// damaged reports an object that is copied though it is.
func (c *copying) damaged(k Key, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report.Problems = append(c.report.Problems, Problem{Partition: k.Partition, Key: k.String(), What: err.Error()})
}

// small copies an object through memory. Its own checksum tells whether it is whole.
func (c *copying) small(ctx context.Context, k Key, o objstore.Object) error {
	b, err := c.read(ctx, o)
	if err != nil {
		return err
	}
	if err := decodes(k, b); err != nil {
		// Once more: it may have been the way, not the object.
		if b, err = c.read(ctx, o); err != nil {
			return err
		}
		if err := decodes(k, b); err != nil {
			c.damaged(k, err)
		}
	}
	return c.put(ctx, o.Key, bytes.NewReader(b), int64(len(b)))
}

func (c *copying) read(ctx context.Context, o objstore.Object) ([]byte, error) {
	b, err := getAll(ctx, c.from, o.Key, max(o.Size, maxIndexSize))
	if errors.Is(err, objstore.ErrNotFound) {
		return nil, errGone
	}
	if err == nil && int64(len(b)) != o.Size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, fmt.Errorf("tiering: copy %s: %w", o.Key, err)
	}
	return b, nil
}

func decodes(k Key, b []byte) (err error) {
	switch k.Kind {
	case KindIndex:
		_, err = DecodeIndex(b)
	case KindPage:
		_, err = DecodePage(b)
	case KindManifest:
		_, err = DecodeManifest(b)
	}
	if errors.Is(err, ErrVersion) {
		return nil // not ours to judge
	}
	return err
}

// log copies a segment through a file, verified against its index, which the
// destination has by now.
func (c *copying) log(ctx context.Context, k Key, o objstore.Object) error {
	spool, err := os.CreateTemp(c.o.Spool, "firn-copy-*")
	if err != nil {
		return err
	}
	defer os.Remove(spool.Name())
	defer spool.Close()

	p, x := k.Partition, k
	x.Kind = KindIndex
	e := &Entry{FileBase: k.Base, ObjectBase: k.Base, Epoch: k.Epoch, ID: k.ID, Size: o.Size}
	var blocks []uint32
	var index *Index
	if object, err := getAll(ctx, c.to, x.String(), maxIndexSize); err == nil {
		index, _ = DecodeIndex(object)
	} else if !errors.Is(err, objstore.ErrNotFound) {
		return err
	}
	if index != nil && index.Size == o.Size {
		blocks, e.LogCRC = index.Blocks, index.LogCRC
	}
	b := &Bucket{store: c.from}
	write := func(off int64, block []byte) error { _, err := spool.WriteAt(block, off); return err }
	err = b.readSegment(ctx, p, e, blocks, write)
	if errors.Is(err, ErrCorrupt) && blocks != nil {
		err = b.readSegment(ctx, p, e, blocks, write) // the way, or the object?
	}
	if errors.Is(err, ErrCorrupt) {
		if blocks == nil {
			err = errors.New("has no index that could vouch for it")
		}
		c.damaged(k, err)
		err = copyStream(ctx, c.from, o, spool)
	}
	switch {
	case errors.Is(err, objstore.ErrNotFound):
		return errGone
	case err != nil:
		return fmt.Errorf("tiering: copy %s: %w", o.Key, err)
	}
	return c.put(ctx, o.Key, spool, o.Size)
}

// copyStream fetches an object as it is.
func copyStream(ctx context.Context, from objstore.Store, o objstore.Object, to io.WriterAt) error {
	r, err := from.GetRange(ctx, o.Key, 0, o.Size)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(io.NewOffsetWriter(to, 0), r)
	return err
}
