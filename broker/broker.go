package broker

import (
	"log/slog"
	"sync/atomic"
	"time"

	"firn/replication/meta"
	"firn/segment/vfs"
)

// Config sets up a Broker.
type Config struct {
	NodeID int32
	Meta   meta.Store
	FS     vfs.FS
	// Log is the logger; nil discards.
	Log *slog.Logger
	// Now is the wall clock; nil means time.Now.
	Now func() time.Time
	// Failpoint is called at named points; nil in production builds.
	Failpoint func(name string) error
}

// Broker serves the Kafka protocol.
type Broker struct {
	cfg    Config
	topics atomic.Pointer[topicIndex]
}
