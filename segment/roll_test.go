package segment

import (
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"firn/segment/vfs"
)

// TestFirstSegmentIsDurableBeforeTheSecondExists: whatever a power loss keeps, a
// log has not lost its beginning alone.
func TestFirstSegmentIsDurableBeforeTheSecondExists(t *testing.T) {
	for _, archived := range []bool{false, true} {
		fsys := vfs.NewMem()
		d := openDir(t, testConfig(t, fsys))
		l := openLog(t, d, Options{Archived: archived})
		l.SetHighWatermark(0)
		for range 2 {
			var first string // the only segment
			var durable atomic.Bool
			for _, s := range segmentsOf(t, l) {
				first = s
			}
			fsys.OnOp(func(op vfs.Op) {
				switch {
				case op.Kind == vfs.OpSyncDir && op.Name == l.path:
					durable.Store(true)
				case op.Kind == vfs.OpCreate && strings.HasSuffix(op.Name, logSuffix) && filepath.Base(op.Name) != first && !durable.Load():
					t.Errorf("%s made before %s was durable", op.Name, first)
				}
			})
			mustAppend(t, l, records(3, 10, testNow))
			if err := l.Roll(d.cfg.Now()); err != nil {
				t.Fatal(err)
			}
			fsys.OnOp(nil)
			end := l.Offsets().End
			l.SetHighWatermark(end)
			if err := l.SetLogStart(t.Context(), end); err != nil {
				t.Fatal(err)
			}
			if _, err := l.DeleteTo(end); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func segmentsOf(t *testing.T, l *Log) (names []string) {
	list, err := l.Segments()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		names = append(names, baseName(s.Base)+logSuffix)
	}
	return names
}
