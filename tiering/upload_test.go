package tiering

import (
	"testing"
)

func TestSealedSegmentsGoUpAndLeaveTheDisk(t *testing.T) {
	w := newWorld(t)
	b := w.start(newDisk(), w.defaults())
	b.lead(1)
	b.append(200)
	b.mustUpload()
	o := b.log.Offsets()
	if o.ArchivedEnd < 150 {
		t.Fatalf("archived up to %d of 200", o.ArchivedEnd)
	}
	w.checkArchived(int(o.ArchivedEnd))
	if o.LocalStart != 0 {
		t.Fatalf("local start %d before any eviction", o.LocalStart)
	}
	b.mustEvict()
	if o = b.log.Offsets(); o.LocalStart != o.ArchivedEnd || o.LogStart != 0 {
		t.Fatalf("after eviction: %+v", o)
	}
	if got := w.orphans(); len(got) > 0 {
		t.Fatalf("orphans: %v", got)
	}
}
