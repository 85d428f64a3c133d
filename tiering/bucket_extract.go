package tiering

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"firn/segment"
	"firn/segment/vfs"
	"firn/tiering/objstore"
)

// ExtractOptions says what to write where.
type ExtractOptions struct {
	Topic string
	// Partitions, if not nil, are the only ones.
	Partitions []int32
	// Dir gets a directory <topic>-<partition> for each.
	Dir string
	Range
	// Progress, if set, is told after each segment.
	Progress func(Partition, ExtractReport)
	// FS is where to write; nil means the operating system's files.
	FS vfs.FS
}

// Range chooses whole segments: those that hold anything of it, by the times
// that a segment begins with and has at most. A zero field is no bound.
type Range struct {
	FromOffset, BelowOffset int64
	FromTime, BelowTime     int64 // Unix milliseconds
}

// Holds tells whether e holds anything of r.
func (r Range) Holds(e *Entry) bool {
	return e.End > r.FromOffset && (r.BelowOffset == 0 || e.Base < r.BelowOffset) &&
		(r.FromTime == 0 || e.MaxTime >= r.FromTime) && (r.BelowTime == 0 || e.BaseTime < r.BelowTime)
}

// ExtractReport is what Extract wrote.
type ExtractReport struct {
	Partitions int   `json:"partitions"`
	Segments   int   `json:"segments"`
	Bytes      int64 `json:"bytes"`
	// Kept are segments that were there already, whole.
	Kept int `json:"kept"`
	// Problems are segments that could not be extracted.
	Problems []Problem `json:"problems,omitempty"`
}

// Extract writes archived segments back as Kafka's files, each equal byte for
// byte to what was sealed: .log, .index, .timeindex, .txnindex if there were
// aborted transactions, the .snapshot of the producers after it, and a
// leader-epoch-checkpoint. A file appears under its name once it is whole and
// verified, so a second run goes on where one ended. A segment that is lost or
// damaged is a Problem, and the rest is extracted.
//
// Where leadership has moved, the file of one segment may begin before the one
// before it ends: each is written as it was sealed. Of two that begin at the
// same offset the longer one is written, which holds what the other does.
func (b *Bucket) Extract(ctx context.Context, o ExtractOptions) (ExtractReport, error) {
	if o.FS == nil {
		o.FS = vfs.OS()
	}
	x := extraction{b: b, o: o}
	topics, err := b.Topics(ctx)
	if err != nil {
		return x.report, err
	}
	topics = slices.DeleteFunc(topics, func(t BucketTopic) bool { return t.Deleted })
	if err := Lacks(topics, o.Topic, o.Partitions); err != nil {
		return x.report, fmt.Errorf("extract: %w", err)
	}
	if err := o.FS.MkdirAll(o.Dir, 0o755); err != nil { // though nothing may be chosen: who asks would look there
		return x.report, fmt.Errorf("extract: %w", err)
	}
	for i := range topics {
		t := &topics[i]
		if t.Info.Name != o.Topic {
			continue
		}
		for _, num := range t.Partitions {
			if o.Partitions != nil && !slices.Contains(o.Partitions, num) {
				continue
			}
			if err := x.partition(ctx, t.Part(num)); err != nil {
				return x.report, fmt.Errorf("extract %s: %w", t.Part(num), err)
			}
		}
	}
	return x.report, nil
}

type extraction struct {
	b      *Bucket
	o      ExtractOptions
	report ExtractReport
}

func (x *extraction) partition(ctx context.Context, p Partition) error {
	bp, err := x.b.Partition(ctx, p)
	if err != nil {
		return err
	}
	chosen, err := x.choose(ctx, bp)
	if err != nil || len(chosen) == 0 {
		return err
	}
	dir := filepath.Join(x.o.Dir, p.String())
	if err := x.o.FS.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	x.report.Partitions++
	var chain []segment.EpochStart
	for i := range chosen {
		e := &chosen[i]
		epochs, err := x.segment(ctx, p, dir, e)
		if err != nil && !aboutObject(err) {
			return err
		}
		if err != nil {
			x.report.Problems = append(x.report.Problems, Problem{Partition: p, Key: e.LogKey(p), From: e.Base, Below: e.End, What: reason(err)})
		} else {
			chain = epochs // the last one's is the longest
		}
		if x.o.Progress != nil {
			x.o.Progress(p, x.report)
		}
	}
	if err := x.file(ctx, dir, "leader-epoch-checkpoint", appendEpochFile(nil, chain)); err != nil {
		return err
	}
	return x.o.FS.SyncDir(dir)
}

// choose lists what is to be extracted, one entry for each file name.
func (x *extraction) choose(ctx context.Context, bp *BucketPartition) ([]Entry, error) {
	var chosen []Entry
	for e, err := range x.b.Entries(ctx, bp) {
		var pe *PageError
		switch {
		case errors.As(err, &pe) && aboutObject(err):
			x.report.Problems = append(x.report.Problems, Problem{Partition: bp.Partition, Key: pe.Key, From: pe.From, Below: pe.Below, What: reason(pe.Err)})
			continue
		case err != nil:
			return nil, err
		case e.End <= bp.Manifest.LogStart || !x.o.Holds(e):
			continue
		}
		if n := len(chosen); n > 0 && chosen[n-1].FileBase == e.FileBase {
			chosen = chosen[:n-1] // e ends later
		}
		chosen = append(chosen, *e)
	}
	return chosen, nil
}

// segment writes the files of one segment and returns the epoch chain up to its end.
func (x *extraction) segment(ctx context.Context, p Partition, dir string, e *Entry) ([]segment.EpochStart, error) {
	idx, err := x.b.Index(ctx, p, e)
	if err != nil {
		return nil, err
	}
	stem := fmt.Sprintf("%020d", e.FileBase)
	// What belongs to a log comes before it: a .log means that all is there.
	for _, f := range []struct {
		name  string
		bytes []byte
		empty bool // written though it is empty
	}{
		{stem + ".index", idx.OffsetIndex, true},
		{stem + ".timeindex", idx.TimeIndex, true},
		{stem + ".txnindex", idx.TxnIndex, false},
		{fmt.Sprintf("%020d.snapshot", e.End), idx.Producers, false},
	} {
		if len(f.bytes) > 0 || f.empty {
			if err := x.file(ctx, dir, f.name, f.bytes); err != nil {
				return nil, err
			}
		}
	}
	name := filepath.Join(dir, stem+".log")
	if x.whole(name, idx) {
		x.report.Kept++
		return idx.Epochs, nil
	}
	if err := x.log(ctx, p, e, idx, name); err != nil {
		return nil, err
	}
	x.report.Segments++
	x.report.Bytes += e.Size
	return idx.Epochs, nil
}

// log downloads a segment beside its name and renames it once it is verified.
func (x *extraction) log(ctx context.Context, p Partition, e *Entry, idx *Index, name string) error {
	return x.replace(name, func(f vfs.File) error {
		return x.b.readSegment(ctx, p, e, idx.Blocks, func(off int64, block []byte) error {
			_, err := f.WriteAt(block, off)
			return err
		})
	})
}

// replace makes name hold what fill writes: all of it, or what it held before.
func (x *extraction) replace(name string, fill func(vfs.File) error) error {
	part := name + ".part"
	f, err := x.o.FS.OpenFile(part, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	if err = fill(f); err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		x.o.FS.Remove(part)
		return err
	}
	return x.o.FS.Rename(part, name)
}

// whole tells whether name holds the segment already.
func (x *extraction) whole(name string, idx *Index) bool {
	f, err := x.o.FS.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	if size, err := f.Size(); err != nil || size != idx.Size {
		return false
	}
	crc, err := objstore.CRC32C(f, idx.Size)
	return err == nil && crc == idx.LogCRC
}

// file makes name hold b, unless it does.
func (x *extraction) file(ctx context.Context, dir, name string, b []byte) error {
	name = filepath.Join(dir, name)
	if err := ctx.Err(); err != nil || x.holds(name, b) {
		return err
	}
	return x.replace(name, func(f vfs.File) error {
		if len(b) == 0 {
			return nil
		}
		_, err := f.WriteAt(b, 0)
		return err
	})
}

// holds tells whether name holds b already.
func (x *extraction) holds(name string, b []byte) bool {
	f, err := x.o.FS.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	if size, err := f.Size(); err != nil || size != int64(len(b)) {
		return false
	}
	have := make([]byte, len(b))
	if len(b) > 0 {
		_, err = f.ReadAt(have, 0)
	}
	return err == nil && bytes.Equal(have, b)
}

// appendEpochFile appends Kafka's leader-epoch-checkpoint: version, count, and a
// line for each epoch and its first offset.
func appendEpochFile(dst []byte, chain []segment.EpochStart) []byte {
	dst = append(dst, "0\n"...)
	dst = append(strconv.AppendInt(dst, int64(len(chain)), 10), '\n')
	for _, e := range chain {
		dst = append(strconv.AppendInt(dst, int64(e.Epoch), 10), ' ')
		dst = append(strconv.AppendInt(dst, e.Start, 10), '\n')
	}
	return dst
}
