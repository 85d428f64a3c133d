package zkmeta

import (
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"

	"firn/replication/meta"
	"firn/zkmeta/metatest"
	"firn/zkmeta/zktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestContract(t *testing.T) {
	t.Parallel()
	e := zktest.Start(t)
	metatest.Run(t, func(t *testing.T) metatest.Harness {
		connect := e.Chroot()
		return metatest.Harness{
			Many:  true,
			Begin: func() meta.Store { return open(t, Config{Connect: connect}) },
			End:   func(s meta.Store) { closeStore(t, s.(*Store)) },
		}
	})
}

// open opens a store, unless cfg says otherwise with a session that outlives any
// stall of the machine.
func open(t testing.TB, cfg Config) *Store {
	t.Helper()
	if cfg.SessionTimeout == 0 {
		cfg.SessionTimeout = 30 * time.Second
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = limit
	}
	cfg.Log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closeStore(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
