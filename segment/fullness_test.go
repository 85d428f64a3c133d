package segment

import (
	"errors"
	"testing"
	"time"

	"firn/segment/vfs"
)

// TestFullness looks at a disk with a reserve of 1 000 bytes every second.
func TestFullness(t *testing.T) {
	patience := Patience{Full: 4 * time.Second, Room: 6 * time.Second}
	// seconds is a look per character: '.' with room, ':' with little more than the
	// reserve, '!' below it, 'x' with room, but a write has failed; want is what is
	// judged then: 'f' full, '-' not.
	for name, c := range map[string]struct{ seconds, want string }{
		"room":                          {"..........", "----------"},
		"a blip":                        {"..!!!!..!!!!..", "--------------"},
		"short for long":                {"..!!!!!!", "------ff"},
		"full at the start":             {"!!!", "fff"},
		"room again, for long":          {"!!.......", "ffffffff-"},
		"room again, interrupted":       {"!!......!.......", "fffffffffffffff-"},
		"little room after full":        {"!!::::::::::", "ffffffffffff"},
		"little room before":            {".::::::::::::", "-------------"},
		"hovering at the reserve":       {".!:!:!:!:!:!:!:", "---------------"},
		"hovering, full":                {"!!:!:!:!:!:!:!:", "fffffffffffffff"},
		"hovering about the room, full": {"!!.:.:.:.:.:.:.", "fffffffffffffff"},
		"one write fails":               {"..x.......", "----------"},
		"writes fail now and then":      {"..x..x..x..x", "------ffffff"},
		"writes fail":                   {"..xxxxxxxxxx", "------ffffff"},
		"and no more":                   {"..xxxxx..........", "------fffffffff--"},
		"below, then writes fail":       {"..!!!xx", "------f"},
	} {
		t.Run(name, func(t *testing.T) {
			var f Fullness
			s := Space{Total: 1_000_000, Reserve: 1000}
			now, got := time.Now(), ""
			for _, look := range c.seconds {
				s.Free = map[rune]int64{'.': 1500, ':': 1499, '!': 999, 'x': 1500}[look]
				s.Low = s.Free < s.Reserve
				if look == 'x' {
					s.Refused += 3
				}
				f = f.Look(now, s, patience)
				now = now.Add(time.Second)
				got += map[bool]string{true: "f", false: "-"}[f.Full]
			}
			if got != c.want {
				t.Errorf("%s: judged %s, want %s", c.seconds, got, c.want)
			}
		})
	}
}

// TestRoom: it is within reach on any disk, and out of it where the reserve is more
// than there is.
func TestRoom(t *testing.T) {
	for _, c := range []struct{ reserve, total, want int64 }{
		{1000, 1_000_000, 1500}, {1000, 1400, 1200}, {0, 1000, 0}, {3000, 1000, 3000},
	} {
		if got := (Space{Reserve: c.reserve, Total: c.total}).Room(); got != c.want {
			t.Errorf("a reserve of %d of %d bytes: room is %d, want %d", c.reserve, c.total, got, c.want)
		}
	}
}

// TestTheReserveChangesWhileItRuns: log.dir.min.free.bytes may be set at any time.
func TestTheReserveChangesWhileItRuns(t *testing.T) {
	fsys := vfs.Inject(vfs.NewMem(), nil)
	c := quiet(fsys)
	c.MinFreeBytes = -1
	fsys.SetQuota(50_000)
	d := openDir(t, c)
	l := openLog(t, d, Options{})
	mustAppend(t, l, records(1, 10, testNow))
	d.SetReserve(60_000)
	if _, err := l.Append(records(1, 10, testNow), AppendOptions{Now: testNow}); !errors.Is(err, ErrNoSpace) {
		t.Errorf("below the new reserve: %v", err)
	}
	d.SetReserve(-1)
	mustAppend(t, l, records(1, 10, testNow))
	if n := d.Space().Refused; n != 0 {
		t.Errorf("%d writes found the disk full, by the reserve alone", n)
	}
	fsys.SetQuota(0)
	if _, err := l.Append(records(1, 10, testNow), AppendOptions{Now: testNow}); !errors.Is(err, ErrNoSpace) {
		t.Errorf("on a full disk: %v", err)
	}
	if n := d.Space().Refused; n != 1 {
		t.Errorf("%d writes found the disk full", n)
	}
}
