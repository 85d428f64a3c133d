package segment

import (
	"slices"
	"testing"

	"firn/segment/batch"
	"firn/segment/vfs"
)

func TestAbortedReachesBelowTheLocalStart(t *testing.T) {
	d := openDir(t, testConfig(t, vfs.NewMem()))
	l := openLog(t, d, Options{Archived: true})
	spec := batch.Spec{Transactional: true, Producer: &batch.Producer{ID: 7}}
	if _, err := l.AppendReplica(batch.Batch(makeBatch(spec, 3, 10, testNow))); err != nil {
		t.Fatal(err)
	}
	if err := l.Roll(d.cfg.Now()); err != nil {
		t.Fatal(err)
	}
	marker := batch.Marker{Type: batch.Abort}.Batch(7, 0, testNow)
	marker.SetBaseOffset(3)
	if _, err := l.AppendReplica(marker); err != nil {
		t.Fatal(err)
	}
	l.SetHighWatermark(4)
	if _, err := l.DeleteTo(3); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ from, below, want int64 }{{0, 2, 1}, {0, 4, 1}, {2, 3, 1}, {4, 9, 0}} {
		got, err := l.Aborted(c.from, c.below)
		if err != nil || int64(len(got)) != c.want || c.want > 0 && !slices.Equal(got, []AbortedTxn{{7, 0}}) {
			t.Errorf("Aborted(%d, %d) = %v, %v; want %d", c.from, c.below, got, err, c.want)
		}
	}
}
