package tiering

import (
	"testing"
	"time"
)

// An operator who asks why nothing is archived hears when it will be.
func TestWhatWaitsSaysUntilWhen(t *testing.T) {
	p := Policy{RollAfter: time.Minute}.withDefaults()
	for size, want := range map[int64]string{
		1 << 20: "the active segment goes up when it is full or 1m old",
		10_000:  "the active segment goes up when it is full, 1m old if it has 1048576 bytes by then, or else 24h old",
	} {
		if got := p.waits(size); got != want {
			t.Errorf("%d bytes: %q, want %q", size, got, want)
		}
	}
	if got := briefly(90 * time.Second); got != "1m30s" {
		t.Error(got)
	}
}
