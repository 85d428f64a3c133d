package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"firn/e2e/harness"
	"firn/e2e/storefault"
)

// TestStoreThatHangsIsToldWithinSeconds: a store that takes requests and answers
// none shows in the archive's state, in health and as a metric long before its
// requests give up.
func TestStoreThatHangsIsToldWithinSeconds(t *testing.T) {
	s := startFaultyStore(t, "minio")
	s.fill("before")
	(&victim{t: t, Firn: s.Firn}).waitArchived("before")
	s.proxy.Set(storefault.BlackHole)
	s.fill("after")
	const words = "the store doesn't answer"
	var state, health string
	var silent float64
	harness.Eventually(t, 12*time.Second, "the archive's state tells, and health, and a metric", func() bool {
		_, state = s.Get("/api/v1/archive/partitions")
		_, health = s.Get("/readyz")
		silent = metric(t, s.Firn, "firn_objstore_silent_seconds")
		return strings.Contains(state, words) && strings.Contains(health, words) && silent >= 5
	}, func() string { return fmt.Sprintf("%s\n%s\n%v s", state, health, silent) })
	s.proxy.Set(storefault.Healthy)
	(&victim{t: t, Firn: s.Firn}).waitArchived("after")
	harness.Eventually(t, 30*time.Second, "all is well", func() bool {
		_, body := s.Get("/readyz")
		return !strings.Contains(body, words)
	})
}
