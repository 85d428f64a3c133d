package tiering

import (
	"fmt"
	"sort"
)

const (
	pageMagic   = "FRNP"
	pageVersion = 1
	// PageEntries is how many entries a page is sealed with. A manifest holds
	// fewer than two pages' worth itself.
	PageEntries = 256
	// maxPageSize bounds what a page may take before it is read.
	maxPageSize = 16 << 20
)

// Page is a sealed run of old manifest entries, an object of its own, so that a
// manifest stays small however long the archive grows. It is immutable.
type Page struct {
	Topic     TopicID
	Partition int32
	Entries   []Entry
}

// AppendTo appends the page's encoding.
func (p *Page) AppendTo(dst []byte) []byte {
	return appendFrame(dst, pageMagic, pageVersion, func(dst []byte) []byte {
		dst = append(dst, p.Topic[:]...)
		dst = appendNat(dst, int64(p.Partition))
		return appendEntries(dst, p.Entries)
	})
}

// DecodePage reads a page. It keeps no part of b.
func DecodePage(b []byte) (*Page, error) {
	body, err := openFrame(b, pageMagic, pageVersion)
	if err != nil {
		return nil, err
	}
	r := reader{b: body}
	p := &Page{}
	copy(p.Topic[:], r.take(len(p.Topic)))
	p.Partition = r.partition()
	p.Entries = r.entries()
	if r.err == nil && len(p.Entries) == 0 {
		r.fail("page without entries")
	}
	if err := r.done(); err != nil {
		return nil, fmt.Errorf("page: %w", err)
	}
	return p, nil
}

// partition reads a partition's number.
func (r *reader) partition() int32 {
	n := r.nat()
	if n > 1<<31-1 {
		r.fail("partition out of range")
	}
	return int32(n)
}

// Ref describes the page to the manifest that will name it.
func (p *Page) Ref(epoch int32, id uint64, object []byte) PageRef {
	first, last := &p.Entries[0], &p.Entries[len(p.Entries)-1]
	ref := PageRef{
		Base: first.Base, End: last.End, MaxTime: first.MaxTime, Count: int32(len(p.Entries)),
		Epoch: epoch, ID: id, ObjectSize: int64(len(object)), ObjectCRC: Checksum(object),
	}
	for i := range p.Entries {
		e := &p.Entries[i]
		ref.MaxTime = max(ref.MaxTime, e.MaxTime)
		ref.Bytes += e.Size
		ref.Records += e.Records
	}
	return ref
}

// Check reports whether p is the page that ref names, of partition part.
func (p *Page) Check(part Partition, ref *PageRef) error {
	got := p.Ref(ref.Epoch, ref.ID, nil)
	got.ObjectSize, got.ObjectCRC = ref.ObjectSize, ref.ObjectCRC
	if p.Topic != part.ID || p.Partition != part.Num || got != *ref {
		return fmt.Errorf("%w: page %s holds [%d, %d) of %s-%d, another than its manifest says",
			ErrCorrupt, ref.Key(part), got.Base, got.End, p.Topic, p.Partition)
	}
	return nil
}

// Find returns the entry that serves offset, or the first one after it; nil if
// the page ends before.
func (p *Page) Find(offset int64) *Entry { return findEntry(p.Entries, offset) }

// FirstAtTime returns the first entry that serves offsets from `from` on and
// holds a timestamp of at least ts; nil if there is none.
func (p *Page) FirstAtTime(ts, from int64) *Entry { return firstAtTime(p.Entries, ts, from) }

func findEntry(list []Entry, offset int64) *Entry {
	i := sort.Search(len(list), func(i int) bool { return list[i].End > offset })
	if i == len(list) {
		return nil
	}
	return &list[i]
}

// firstAtTime looks at each entry's own maximum: the first that reaches ts is
// also where the running maximum reaches it.
func firstAtTime(list []Entry, ts, from int64) *Entry {
	for i := range list {
		if e := &list[i]; e.MaxTime >= ts && e.End > from {
			return e
		}
	}
	return nil
}
