package tiering

import (
	"encoding/binary"
	"fmt"
	"sort"

	"firn/segment"
)

const (
	indexMagic = "FRNI"
	// Version 1 has no Units and no Starts.
	indexVersion = 2
	// BlockSize is the unit of caching; each has a checksum.
	BlockSize = 1 << 20
	// UnitSize is the finer unit of checksums: what a reader needs first is
	// verified without the rest of its block.
	UnitSize = 64 << 10
	// startEvery is how close Starts lie, where batches are smaller than it.
	startEvery = 64 << 10
	// maxIndexSize bounds what an .idx object may take before it is read.
	maxIndexSize = 256 << 20
)

// Index is the .idx object of a segment: all that isn't in its .log object. The
// two together say everything that an Entry says (T6).
type Index struct {
	Topic     TopicID
	Partition int32
	// The file: offsets [FileBase, End), times, size, records and checksum as
	// in Entry.
	FileBase, End     int64
	BaseTime, MaxTime int64
	Size, Records     int64
	Aborted           bool
	LogCRC            uint32
	// OffsetIndex, TimeIndex and TxnIndex are Kafka's .index, .timeindex and
	// .txnindex as they were sealed, to the byte.
	OffsetIndex, TimeIndex, TxnIndex []byte
	// Producers is Kafka's .snapshot of the producers at End.
	Producers []byte
	// Epochs is the whole epoch chain of the log up to End, from its first epoch.
	Epochs []segment.EpochStart
	// Blocks are the CRC-32C of each BlockSize of the file; the last may be short.
	Blocks []uint32
	// Units are the CRC-32C of each UnitSize. nil: written by version 1.
	Units []uint32
	// Starts are where batches begin: the first one, and from each the next one
	// that is startEvery away or further. nil: written by version 1.
	Starts []BatchStart
}

// BatchStart is where in the file a batch begins, and its first offset. (An entry
// of Kafka's index has its last one.)
type BatchStart struct{ Offset, Pos int64 }

// AppendTo appends the index's encoding: in the version that it has the parts of.
func (x *Index) AppendTo(dst []byte) []byte {
	version := uint16(indexVersion)
	if x.Units == nil {
		version = 1
	}
	return appendFrame(dst, indexMagic, version, func(dst []byte) []byte {
		dst = append(dst, x.Topic[:]...)
		dst = appendNat(dst, int64(x.Partition))
		dst = appendNat(dst, x.FileBase)
		dst = appendNat(dst, x.End-x.FileBase)
		dst = appendInt(dst, x.BaseTime)
		dst = appendInt(dst, x.MaxTime)
		dst = appendNat(dst, x.Size)
		dst = appendNat(dst, x.Records)
		if x.Aborted {
			dst = append(dst, 1)
		} else {
			dst = append(dst, 0)
		}
		dst = binary.BigEndian.AppendUint32(dst, x.LogCRC)
		for _, b := range [][]byte{x.OffsetIndex, x.TimeIndex, x.TxnIndex, x.Producers} {
			dst = appendBytes(dst, b)
		}
		dst = appendEpochs(dst, x.Epochs)
		for _, c := range x.Blocks { // as many as Size says
			dst = binary.BigEndian.AppendUint32(dst, c)
		}
		if version == 1 {
			return dst
		}
		for _, c := range x.Units {
			dst = binary.BigEndian.AppendUint32(dst, c)
		}
		dst = appendNat(dst, int64(len(x.Starts)))
		prev := BatchStart{x.FileBase, 0}
		for _, s := range x.Starts {
			dst = appendNat(dst, s.Offset-prev.Offset)
			dst = appendNat(dst, s.Pos-prev.Pos)
			prev = s
		}
		return dst
	})
}

// DecodeIndex reads an .idx object. The result's byte slices alias b.
func DecodeIndex(b []byte) (*Index, error) {
	body, err := openFrame(b, indexMagic, indexVersion)
	if err != nil {
		return nil, err
	}
	version := binary.BigEndian.Uint16(b[len(indexMagic):])
	r := reader{b: body}
	x := &Index{}
	copy(x.Topic[:], r.take(len(x.Topic)))
	x.Partition = r.partition()
	x.FileBase = r.nat()
	x.End = r.plus(x.FileBase, r.nat())
	x.BaseTime, x.MaxTime = r.varint(), r.varint()
	x.Size, x.Records = r.nat(), r.nat()
	if p := r.take(1); p != nil && p[0] > 1 {
		r.fail("unknown index flags")
	} else if p != nil {
		x.Aborted = p[0] == 1
	}
	x.LogCRC = r.uint32()
	for _, b := range []*[]byte{&x.OffsetIndex, &x.TimeIndex, &x.TxnIndex, &x.Producers} {
		*b = r.bytes()
	}
	x.Epochs = r.epochs(nil)
	switch {
	case r.err != nil:
	case x.End == x.FileBase || x.Size == 0:
		r.fail("index of an empty segment")
	case x.MaxTime < x.BaseTime:
		r.fail("index times don't rise")
	case len(x.OffsetIndex)%offsetEntry != 0 || len(x.TimeIndex)%timeEntry != 0 || len(x.TxnIndex)%txnEntry != 0:
		r.fail("index of broken entries")
	case len(x.Epochs) > 0 && x.Epochs[len(x.Epochs)-1].Start >= x.End:
		r.fail("index epochs outside the segment")
	default:
		x.Blocks = r.sums(x.Size, BlockSize)
		if version > 1 {
			x.Units = r.sums(x.Size, UnitSize)
			x.Starts = r.starts(x)
		}
	}
	if err := r.done(); err != nil {
		return nil, fmt.Errorf("index: %w", err)
	}
	return x, nil
}

// sums reads the checksums of size bytes, one for each unit.
func (r *reader) sums(size, unit int64) []uint32 {
	if size > int64(len(r.b)/4)*unit {
		r.fail("fewer checksums than bytes need")
		return nil
	}
	sums := make([]uint32, (size+unit-1)/unit)
	for i := range sums {
		sums[i] = r.uint32()
	}
	return sums
}

// starts reads where batches of x begin: both numbers rise, within the file.
func (r *reader) starts(x *Index) []BatchStart {
	list := make([]BatchStart, r.count(2))
	prev := BatchStart{x.FileBase, 0}
	for i := range list {
		s := BatchStart{r.plus(prev.Offset, r.nat()), r.plus(prev.Pos, r.nat())}
		if s.Offset >= x.End || s.Pos >= x.Size || i > 0 && (s.Offset == prev.Offset || s.Pos == prev.Pos) {
			r.fail("starts of batches don't rise within the file")
		}
		if r.err != nil {
			return nil
		}
		list[i], prev = s, s
	}
	return list
}

// The sizes of an entry of Kafka's indexes.
const (
	offsetEntry = 8  // relative offset, position
	timeEntry   = 12 // timestamp, relative offset
	txnEntry    = 34 // version, producer id, first, last and last stable offset
)

// Check reports whether x is the index of the segment that e lists.
func (x *Index) Check(p Partition, e *Entry) error {
	if x.Topic != p.ID || x.Partition != p.Num || x.FileBase != e.FileBase || x.End != e.End || x.Size != e.Size ||
		x.Records != e.Records || x.LogCRC != e.LogCRC || x.BaseTime != e.BaseTime || x.MaxTime != e.MaxTime || x.Aborted != e.Aborted {
		return fmt.Errorf("%w: %s is not the index of its entry", ErrCorrupt, e.IndexKey(p))
	}
	return nil
}

// NumBlocks is the number of blocks of the file.
func (x *Index) NumBlocks() int { return int((x.Size + BlockSize - 1) / BlockSize) }

// Block is where the i-th block lies in the file.
func (x *Index) Block(i int) (off int64, n int) {
	off = int64(i) * BlockSize
	return off, int(min(BlockSize, x.Size-off))
}

// Position is a position in the file at or before the batch that holds offset;
// a batch begins there.
func (x *Index) Position(offset int64) int64 {
	if offset < x.FileBase {
		return 0
	}
	n := len(x.OffsetIndex) / offsetEntry
	rel := offset - x.FileBase
	i := sort.Search(n, func(i int) bool {
		return int64(int32(binary.BigEndian.Uint32(x.OffsetIndex[i*offsetEntry:]))) > rel
	})
	if i == 0 {
		return 0
	}
	pos := int64(int32(binary.BigEndian.Uint32(x.OffsetIndex[(i-1)*offsetEntry+4:])))
	if pos < 0 || pos >= x.Size {
		return 0 // a damaged index costs time, never data (S2)
	}
	return pos
}

// TimeFloor is an offset such that every record before it in the file has a
// timestamp below ts: a search for the first record at ts starts there.
func (x *Index) TimeFloor(ts int64) int64 {
	n := len(x.TimeIndex) / timeEntry
	i := sort.Search(n, func(i int) bool {
		return int64(binary.BigEndian.Uint64(x.TimeIndex[i*timeEntry:])) >= ts
	})
	if i == 0 {
		return x.FileBase
	}
	rel := int64(int32(binary.BigEndian.Uint32(x.TimeIndex[(i-1)*timeEntry+8:])))
	if rel < 0 || rel >= x.End-x.FileBase {
		return x.FileBase
	}
	return x.FileBase + rel
}

// EpochsOf are the links of the chain that cover [base, end): the first starts
// at base or before. It aliases x.Epochs.
func (x *Index) EpochsOf(base, end int64) []segment.EpochStart { return epochsOf(x.Epochs, base, end) }

func epochsOf(chain []segment.EpochStart, base, end int64) []segment.EpochStart {
	from := sort.Search(len(chain), func(i int) bool { return chain[i].Start > base })
	to := sort.Search(len(chain), func(i int) bool { return chain[i].Start >= end })
	return chain[max(0, from-1):max(to, from-1, 0)]
}
