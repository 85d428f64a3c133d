package e2e

import (
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
	harness.Eventually(t, 12*time.Second, "the archive's state tells", func() bool {
		_, body := s.Get("/api/v1/archive/partitions")
		return strings.Contains(body, words)
	})
	if _, body := s.Get("/readyz"); !strings.Contains(body, words) {
		t.Errorf("health says %s", body)
	}
	if v := metric(t, s.Firn, "firn_objstore_silent_seconds"); v < 5 {
		t.Errorf("silent for %v s", v)
	}
	s.proxy.Set(storefault.Healthy)
	(&victim{t: t, Firn: s.Firn}).waitArchived("after")
	harness.Eventually(t, 30*time.Second, "all is well", func() bool {
		_, body := s.Get("/readyz")
		return !strings.Contains(body, words)
	})
}
