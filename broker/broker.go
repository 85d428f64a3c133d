package broker

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"firn/replication/meta"
	"firn/segment/vfs"
)

// Config sets up a Broker.
type Config struct {
	NodeID int32
	Meta   meta.Store
	FS     vfs.FS
	// Listeners are where to serve; at least one.
	Listeners []Listener
	Network   Network
	// Log is the logger; nil discards.
	Log *slog.Logger
	// Metrics is where metrics are registered; nil means nowhere.
	Metrics prometheus.Registerer
	// Now is the wall clock; nil means time.Now.
	Now func() time.Time
	// Failpoint is called at named points; nil in production builds.
	Failpoint func(name string) error
}

// Broker serves the Kafka protocol.
type Broker struct {
	cfg    Config
	now    func() time.Time
	log    *slog.Logger
	server *server
	topics atomic.Pointer[topicIndex]
}

// New makes a Broker and opens its listeners: clients can connect from now on,
// and are answered once Run runs.
func New(cfg Config) (*Broker, error) {
	b := &Broker{cfg: cfg, now: cfg.Now, log: cfg.Log}
	if b.now == nil {
		b.now = time.Now
	}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	b.topics.Store(&topicIndex{})
	m, err := newMetrics(cfg.Metrics)
	if err != nil {
		return nil, err
	}
	if b.server, err = newServer(b, cfg.Listeners, cfg.Network, b.log, m); err != nil {
		return nil, err
	}
	return b, nil
}

// Endpoints are where clients reach this broker.
func (b *Broker) Endpoints() []meta.Endpoint {
	var es []meta.Endpoint
	for _, l := range b.server.listeners {
		es = append(es, l.endpoint)
	}
	return es
}

// Run serves until ctx ends or a part of the broker fails. The connections are
// wound up first, while everything that their requests need still runs.
func (b *Broker) Run(ctx context.Context) error {
	g, failed := errgroup.WithContext(context.WithoutCancel(ctx))
	background, stop := context.WithCancel(failed)
	defer stop()
	for _, run := range b.parts() {
		g.Go(func() error { return run(background) })
	}
	serving, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(failed, cancel)()
	err := b.server.run(serving)
	stop()
	if e := g.Wait(); e != nil {
		return e
	}
	return err
}

// parts are what runs behind the connections until its ctx ends.
func (b *Broker) parts() []func(context.Context) error {
	return nil
}
