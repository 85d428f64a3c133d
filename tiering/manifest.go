package tiering

import (
	"encoding/binary"
	"fmt"
	"sort"
)

const (
	manifestMagic   = "FRNM"
	manifestVersion = 1
	// maxManifestSize bounds what a manifest may take before it is read: pages
	// for ten million segments.
	maxManifestSize = 16 << 20
)

// Manifest lists what is archived of a partition. It is immutable: each change
// is a new one, which names its predecessor. It counts once the partition's
// pointer names it (T3).
type Manifest struct {
	Topic     TopicID
	Partition int32
	// Epoch is the leader epoch of its writer; Seq rises by one with each
	// manifest, across epochs.
	Epoch int32
	Seq   int64
	// PrevKey and PrevCRC name the predecessor; empty for the first.
	PrevKey string
	PrevCRC uint32
	// LogStart is the log start offset of the partition. Entries below it are
	// no longer served, and deletable.
	LogStart int64
	// DeletedThrough: the objects of every entry that ends at or below it are
	// deleted (T4). At most LogStart.
	DeletedThrough int64
	// ArchivedEnd is the offset after the last archived one, never below
	// LogStart; LastEpoch is the leader epoch of the offset before it, -1 for none.
	ArchivedEnd int64
	LastEpoch   int32
	// Pages are the sealed pages, oldest first; Entries, the newest segments,
	// go on where they end. There are gaps only below LogStart.
	Pages   []PageRef
	Entries []Entry
}

// PageRef names a sealed page and sums it up.
type PageRef struct {
	Base, End int64 // the offsets that its entries serve
	MaxTime   int64
	Bytes     int64 // of the segments
	Records   int64
	Count     int32 // of entries
	Epoch     int32
	ID        uint64
	// ObjectSize and ObjectCRC are of the page itself.
	ObjectSize int64
	ObjectCRC  uint32
}

// Key is the page's key.
func (ref *PageRef) Key(p Partition) string {
	return Key{Kind: KindPage, Partition: p, Base: ref.Base, Last: ref.End - 1, Epoch: ref.Epoch, ID: ref.ID}.String()
}

// AppendTo appends the manifest's encoding.
func (m *Manifest) AppendTo(dst []byte) []byte {
	return appendFrame(dst, manifestMagic, manifestVersion, func(dst []byte) []byte {
		dst = append(dst, m.Topic[:]...)
		dst = appendNat(dst, int64(m.Partition))
		dst = appendInt(dst, int64(m.Epoch))
		dst = appendNat(dst, m.Seq)
		dst = appendBytes(dst, m.PrevKey)
		dst = binary.BigEndian.AppendUint32(dst, m.PrevCRC)
		dst = appendNat(dst, m.LogStart)
		dst = appendNat(dst, m.LogStart-m.DeletedThrough)
		dst = appendNat(dst, m.ArchivedEnd-m.LogStart)
		dst = appendInt(dst, int64(m.LastEpoch))
		dst = appendPages(dst, m.Pages)
		return appendEntries(dst, m.Entries)
	})
}

func appendPages(dst []byte, pages []PageRef) []byte {
	dst = appendNat(dst, int64(len(pages)))
	var prev PageRef
	for i := range pages {
		p := &pages[i]
		dst = appendNat(dst, p.Base-prev.End)
		dst = appendNat(dst, p.End-p.Base)
		dst = appendInt(dst, p.MaxTime-prev.MaxTime)
		dst = appendNat(dst, p.Bytes)
		dst = appendNat(dst, p.Records)
		dst = appendNat(dst, int64(p.Count))
		dst = appendInt(dst, int64(p.Epoch)-int64(prev.Epoch))
		dst = binary.BigEndian.AppendUint64(dst, p.ID)
		dst = appendNat(dst, p.ObjectSize)
		dst = binary.BigEndian.AppendUint32(dst, p.ObjectCRC)
		prev = *p
	}
	return dst
}

// minPage is the least number of bytes that a page reference takes.
const minPage = 20

func (r *reader) pages() []PageRef {
	n := r.count(minPage)
	pages := make([]PageRef, 0, n)
	var prev PageRef
	for range n {
		p := PageRef{}
		p.Base = r.plus(prev.End, r.nat())
		p.End = r.plus(p.Base, r.nat())
		p.MaxTime = prev.MaxTime + r.varint()
		p.Bytes, p.Records = r.nat(), r.nat()
		count, epoch := r.nat(), r.plus(int64(prev.Epoch), r.varint())
		p.Count, p.Epoch = int32(count), int32(epoch)
		p.ID = r.uint64()
		p.ObjectSize, p.ObjectCRC = r.nat(), r.uint32()
		if p.End == p.Base || count == 0 || count > 1<<31-1 || epoch < 0 || epoch > 1<<31-1 || p.ObjectSize > maxPageSize {
			r.fail("page out of range")
		}
		if r.err != nil {
			return nil
		}
		pages = append(pages, p)
		prev = p
	}
	return pages
}

// DecodeManifest reads a manifest and checks that it is whole in itself. It
// keeps no part of b.
func DecodeManifest(b []byte) (*Manifest, error) {
	body, err := openFrame(b, manifestMagic, manifestVersion)
	if err != nil {
		return nil, err
	}
	r := reader{b: body}
	m := &Manifest{}
	copy(m.Topic[:], r.take(len(m.Topic)))
	m.Partition = r.partition()
	m.Epoch = r.int32()
	m.Seq = r.nat()
	m.PrevKey = string(r.bytes())
	m.PrevCRC = r.uint32()
	m.LogStart = r.nat()
	m.DeletedThrough = m.LogStart - r.nat()
	m.ArchivedEnd = r.plus(m.LogStart, r.nat())
	m.LastEpoch = r.int32()
	m.Pages = r.pages()
	m.Entries = r.entries()
	if err := r.done(); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("manifest: %w: %w", ErrCorrupt, err)
	}
	return m, nil
}

// check reports what is inconsistent in m itself: a hole that a reader could
// fall into, above all.
func (m *Manifest) check() error {
	if m.Epoch < 0 || m.LastEpoch < -1 || m.DeletedThrough < 0 || m.ArchivedEnd < m.LogStart || m.DeletedThrough > m.LogStart {
		return fmt.Errorf("offsets: deleted through %d, log start %d, archived end %d", m.DeletedThrough, m.LogStart, m.ArchivedEnd)
	}
	end := int64(-1)
	join := func(base, next int64) error {
		if end < 0 && base > m.LogStart {
			return fmt.Errorf("begins at %d, past the log start %d", base, m.LogStart)
		}
		if end >= 0 && (base < end || base > end && base > m.LogStart) {
			return fmt.Errorf("an entry ends at %d, the next begins at %d", end, base)
		}
		end = next
		return nil
	}
	for i := range m.Pages {
		if err := join(m.Pages[i].Base, m.Pages[i].End); err != nil {
			return err
		}
	}
	for i := range m.Entries {
		if err := join(m.Entries[i].Base, m.Entries[i].End); err != nil {
			return err
		}
	}
	if end < m.ArchivedEnd && m.ArchivedEnd > m.LogStart || end > m.ArchivedEnd {
		return fmt.Errorf("entries end at %d, archived end is %d", end, m.ArchivedEnd)
	}
	return nil
}

// Check reports whether m is the manifest that ptr names, of partition p.
func (m *Manifest) Check(p Partition, ptr Pointer) error {
	if m.Topic != p.ID || m.Partition != p.Num || m.Seq != ptr.Sequence || m.LogStart != ptr.LogStart ||
		m.ArchivedEnd != ptr.ArchivedEnd || m.LastEpoch != ptr.LastEpoch {
		return fmt.Errorf("%w: manifest %s says otherwise than its pointer", ErrCorrupt, ptr.ManifestKey)
	}
	return nil
}

// Pointer is the pointer that names m, whose encoding is object.
func (m *Manifest) Pointer(key string, object []byte) Pointer {
	return Pointer{
		ManifestKey: key, ManifestSize: int64(len(object)), ManifestCRC: Checksum(object),
		Sequence: m.Seq, LastEpoch: m.LastEpoch, LogStart: m.LogStart, ArchivedEnd: m.ArchivedEnd,
	}
}

// Locate finds the entry that serves offset, or the first after it: either the
// entry, or the page in which to look for it. Both are nil at the archived end.
// They are part of m and must not be changed.
func (m *Manifest) Locate(offset int64) (*PageRef, *Entry) {
	if i := sort.Search(len(m.Pages), func(i int) bool { return m.Pages[i].End > offset }); i < len(m.Pages) {
		return &m.Pages[i], nil
	}
	return nil, findEntry(m.Entries, offset)
}

// FirstAtTime finds the first entry that serves offsets from `from` on and whose
// file holds a timestamp of at least ts: either the entry, or a page that
// may hold it. If the page doesn't, go on from its End.
func (m *Manifest) FirstAtTime(ts, from int64) (*PageRef, *Entry) {
	for i := range m.Pages {
		if p := &m.Pages[i]; p.MaxTime >= ts && p.End > from {
			return p, nil
		}
	}
	return nil, firstAtTime(m.Entries, ts, from)
}

// MaxTime is the largest timestamp in files that serve offsets from `from` on;
// false if there are none.
func (m *Manifest) MaxTime(from int64) (ts int64, ok bool) {
	add := func(t, end int64) {
		if end > from {
			if !ok || t > ts {
				ts = t
			}
			ok = true
		}
	}
	for i := range m.Pages {
		add(m.Pages[i].MaxTime, m.Pages[i].End)
	}
	for i := range m.Entries {
		add(m.Entries[i].MaxTime, m.Entries[i].End)
	}
	return ts, ok
}
