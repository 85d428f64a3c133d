package tiering

import (
	"encoding/binary"

	"firn/segment"
)

// Entry is one archived segment as a manifest or a page lists it.
type Entry struct {
	// [Base, End) are the offsets that it serves: from where the entry before it
	// ends. Entries never overlap, whatever their files hold (D28).
	Base, End int64
	// FileBase is the first offset of its file, at most Base: borders of
	// segments differ between replicas.
	FileBase int64
	// BaseTime is the timestamp of the file's first batch, MaxTime the largest
	// of any record in the file, in Unix milliseconds.
	BaseTime, MaxTime int64
	// Size is the file's size in bytes, Records the number of its records.
	Size, Records int64
	// The bytes are [Offset, Offset+Size) of the object that ObjectBase, Epoch
	// and ID name. Today each segment has an object of its own: ObjectBase is
	// FileBase and Offset is 0.
	ObjectBase int64
	Offset     int64
	ID         uint64
	Epoch      int32 // of the leader that uploaded it
	// Aborted: the file holds the end of an aborted transaction.
	Aborted bool
	LogCRC  uint32 // CRC-32C of the file
	IdxCRC  uint32 // of the .idx object
	IdxSize int64
	// Epochs are the leader epochs of the offsets served. The first starts at Base
	// or before; the last is the epoch of End-1.
	Epochs []segment.EpochStart
}

// LogKey is the key of the object that holds the segment's bytes.
func (e *Entry) LogKey(p Partition) string {
	return Key{Kind: KindLog, Partition: p, Base: e.ObjectBase, Epoch: e.Epoch, ID: e.ID}.String()
}

// IndexKey is the key of its .idx object.
func (e *Entry) IndexKey(p Partition) string {
	return Key{Kind: KindIndex, Partition: p, Base: e.FileBase, Epoch: e.Epoch, ID: e.ID}.String()
}

// LastEpoch is the leader epoch of the last offset served.
func (e *Entry) LastEpoch() int32 {
	if len(e.Epochs) == 0 {
		return -1
	}
	return e.Epochs[len(e.Epochs)-1].Epoch
}

const (
	entryAborted = 1 << iota
	entryShared  // ObjectBase and Offset follow
	entryFlags   = entryAborted | entryShared
)

// minEntry is the least number of bytes that an entry takes.
const minEntry = 27

// appendEntries appends a list: every number as its difference from what is
// most often next to it, so that an entry is about 40 bytes.
func appendEntries(dst []byte, list []Entry) []byte {
	dst = appendNat(dst, int64(len(list)))
	var prev Entry
	for i := range list {
		e := &list[i]
		flags := byte(0)
		if e.Aborted {
			flags |= entryAborted
		}
		if e.ObjectBase != e.FileBase || e.Offset != 0 {
			flags |= entryShared
		}
		dst = append(dst, flags)
		dst = appendNat(dst, e.Base-prev.End)
		dst = appendNat(dst, e.End-e.Base)
		dst = appendNat(dst, e.Base-e.FileBase)
		dst = appendInt(dst, e.BaseTime-prev.MaxTime)
		dst = appendInt(dst, e.MaxTime-e.BaseTime)
		dst = appendNat(dst, e.Size)
		dst = appendInt(dst, e.Records-(e.End-e.FileBase))
		dst = appendInt(dst, int64(e.Epoch)-int64(prev.Epoch))
		dst = binary.BigEndian.AppendUint64(dst, e.ID)
		dst = binary.BigEndian.AppendUint32(dst, e.LogCRC)
		dst = binary.BigEndian.AppendUint32(dst, e.IdxCRC)
		dst = appendNat(dst, e.IdxSize)
		if flags&entryShared != 0 {
			dst = appendNat(dst, e.ObjectBase)
			dst = appendNat(dst, e.Offset)
		}
		dst = appendEpochs(dst, e.Epochs)
		prev = *e
	}
	return dst
}

// entries reads a list. Their epochs share one array.
func (r *reader) entries() []Entry {
	n := r.count(minEntry)
	list := make([]Entry, 0, n)
	chain := make([]segment.EpochStart, 0, n+n/8)
	var prev Entry
	for range n {
		e := r.entry(&prev, &chain)
		if r.err != nil {
			return nil
		}
		list = append(list, e)
		prev = e
	}
	return list
}

func (r *reader) entry(prev *Entry, chain *[]segment.EpochStart) (e Entry) {
	var flags byte
	if p := r.take(1); p != nil {
		flags = p[0]
	}
	if flags&^entryFlags != 0 {
		r.fail("unknown entry flags")
	}
	e.Aborted = flags&entryAborted != 0
	e.Base = r.plus(prev.End, r.nat())
	e.End = r.plus(e.Base, r.nat())
	e.FileBase = e.Base - r.nat()
	e.BaseTime = prev.MaxTime + r.varint() // timestamps are the producers': any value, wrapping is exact
	e.MaxTime = e.BaseTime + r.varint()
	e.Size = r.nat()
	e.Records = r.plus(e.End-e.FileBase, r.varint())
	epoch := r.plus(int64(prev.Epoch), r.varint())
	e.Epoch = int32(epoch)
	e.ID = r.uint64()
	e.LogCRC, e.IdxCRC = r.uint32(), r.uint32()
	e.IdxSize = r.nat()
	e.ObjectBase = e.FileBase
	if flags&entryShared != 0 {
		e.ObjectBase, e.Offset = r.nat(), r.nat()
		if e.ObjectBase == e.FileBase && e.Offset == 0 {
			r.fail("shared object that is not shared")
		}
	}
	from := len(*chain)
	*chain = r.epochs(*chain)
	if r.err != nil {
		return Entry{}
	}
	e.Epochs = (*chain)[from:len(*chain):len(*chain)]
	switch {
	case e.End == e.Base:
		r.fail("entry serves nothing")
	case e.FileBase < 0 || e.Size == 0 || e.IdxSize == 0 || e.Records < 0:
		r.fail("entry out of range")
	case epoch < 0 || epoch > 1<<31-1:
		r.fail("entry epoch out of range")
	case r.plus(e.Offset, e.Size) == 0:
	case e.MaxTime < e.BaseTime:
		r.fail("entry times don't rise")
	case len(e.Epochs) > 0 && (e.Epochs[0].Start > e.Base || e.Epochs[len(e.Epochs)-1].Start >= e.End):
		r.fail("entry epochs outside it")
	}
	return e
}
