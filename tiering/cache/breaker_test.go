package cache

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"
)

// TestTroubleLastsUntilTheStoreAnswers: health shows it between two tries too,
// when the breaker lets one through.
func TestTroubleLastsUntilTheStoreAnswers(t *testing.T) {
	b := breaker{jitter: rand.N[time.Duration]}
	now, down := time.Now(), errors.New("connection refused")
	for range breakAfter - 1 {
		b.failed(now, down)
	}
	if err := b.trouble(); err != nil {
		t.Errorf("after few failures: %v", err)
	}
	b.failed(now, down)
	if err := b.trouble(); !errors.Is(err, down) {
		t.Errorf("trouble = %v, want %v", err, down)
	}
	if b.refused(now.Add(breakMax)) != nil || !errors.Is(b.trouble(), down) {
		t.Error("the pause is over, the trouble is not")
	}
	b.succeeded()
	if err := b.trouble(); err != nil {
		t.Errorf("after an answer: %v", err)
	}
}
