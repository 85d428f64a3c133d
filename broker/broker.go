package broker

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"firn/broker/config"
	"firn/replication"
	"firn/replication/meta"
	"firn/segment"
	"firn/segment/vfs"
	"firn/tiering"
	"firn/tiering/cache"
	"firn/tiering/objstore"
)

// Config sets up a Broker.
type Config struct {
	NodeID int32
	// Settings is the broker's static configuration.
	Settings *config.Broker
	// LogDir is the directory of the partitions' logs.
	LogDir string
	Meta   meta.Store
	FS     vfs.FS
	// Archive is where archived segments go; nil means that there is no archive.
	Archive objstore.Store
	// ArchiveWait bounds how long a start waits for Archive to say whose it is; 0
	// means 10 s.
	ArchiveWait time.Duration
	// CacheDir is where what is read from the archive is cached on disk; ""
	// means in memory only.
	CacheDir string
	// Listeners are where to serve; at least one.
	Listeners []Listener
	Network   Network
	// Dial connects to other brokers; nil means a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
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

	clusterID string
	// topics is the picture of the cluster that image keeps.
	topics atomic.Pointer[topicIndex]
	// changed is raised when topics was replaced or a replica has become leader.
	changed     signal
	image       *image
	replicas    *replicas
	archive     *tiering.Archive // nil: none
	cache       *cache.Cache     // of archive
	producerIDs *producerIDs
	groups      *coordinator
	// member is this broker in its current registration; nil before the first,
	// and while there is none.
	member atomic.Pointer[membership]
	// hasJoined: what join sets up is there.
	hasJoined atomic.Bool
	epochs    epochKeeper
	// unclean counts this broker's unclean elections, as controller.
	unclean   atomic.Int64
	decisions decisions
	// draining: it is about to stop, and has others lead.
	draining     atomic.Bool
	diskPatience segment.Patience
	// relistDue asks for a look at what is given up here.
	relistDue chan struct{}
	// listing is held by who changes what this broker lists as given up.
	listing sync.Mutex
	// lease is nil on a store whose session can't end while this broker lives.
	lease     *replication.Lease
	throttles throttles
	// interBroker is the name of the listener that takes the requests of brokers.
	interBroker string
	followers   *followers
	inSync      *inSync
	// metaLook and archiveLook find out whether what lies outside is there.
	metaLook, archiveLook *look
	// ready is closed when clients are served.
	ready chan struct{}
	// retentionDue asks for a round of retention before its time.
	retentionDue chan struct{}
	// purgeDue asks for a look at the tombstones of deleted topics.
	purgeDue chan struct{}
}

// New makes a Broker and opens its listeners: clients can connect from now on,
// and are answered once Run has recovered the logs and joined the cluster.
func New(cfg Config) (*Broker, error) {
	if cfg.Settings != nil {
		cfg.Settings = cfg.Settings.WithArchive(cfg.Archive != nil)
	}
	b := &Broker{cfg: cfg, now: cfg.Now, log: cfg.Log, ready: make(chan struct{}), retentionDue: make(chan struct{}, 1), purgeDue: make(chan struct{}, 1), relistDue: make(chan struct{}, 1),
		diskPatience: segment.Patience{Full: fullAfter, Room: roomAfter}}
	if b.now == nil {
		b.now = time.Now
	}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	b.topics.Store(&topicIndex{settings: cfg.Settings, controller: -1})
	if _, ok := cfg.Meta.(meta.Expiring); ok {
		b.lease = replication.NewLease()
	}
	b.epochs.fs, b.epochs.dir = cfg.FS, cfg.LogDir
	b.replicas = &replicas{
		lease: b.lease,
		node:  cfg.NodeID, fs: cfg.FS, path: cfg.LogDir, log: b.log,
		self: b.self, topicInfo: b.topicInfo, changed: &b.changed, reconfigured: b.retentionDue, deleted: b.purgeDue,
	}
	b.replicas.mu.all = map[replicaKey]*replica{}
	b.image = &image{
		store: cfg.Meta, node: cfg.NodeID, log: b.log, static: cfg.Settings,
		replicas: b.replicas, publish: b.publish, known: b.known, joined: b.joined, unlist: b.unlist, now: b.topics.Load(),
	}
	b.producerIDs = newProducerIDs(b.log, b.allocateProducerIDs)
	b.groups = newCoordinator(b)
	var err error
	if b.interBroker, err = interBrokerListener(&cfg); err != nil {
		return nil, err
	}
	b.followers = newFollowers(b)
	b.replicas.moved = b.followers.assign
	b.inSync = newInSync(b)
	b.metaLook, b.archiveLook = newLook("the metadata store", b.askMeta), newLook("the store", b.askArchive)
	m, err := newMetrics(cfg.Metrics)
	if err != nil {
		return nil, err
	}
	if cfg.Metrics != nil {
		if err := cfg.Metrics.Register(newClusterMetrics(b)); err != nil {
			return nil, err
		}
		if err := cfg.Metrics.Register(newGroupMetrics(b.groups)); err != nil {
			return nil, err
		}
		if err := cfg.Metrics.Register(&b.decisions); err != nil {
			return nil, err
		}
		if err := cfg.Metrics.Register(newReplicationMetrics(b)); err != nil {
			return nil, err
		}
	}
	if b.server, err = newServer(b, cfg.Listeners, cfg.Network, b.log, m); err != nil {
		return nil, err
	}
	return b, nil
}

// settings is the configuration that holds now, dynamic values included.
func (b *Broker) settings() *config.Broker { return b.topics.Load().settings }

// publish takes the place of the present picture.
func (b *Broker) publish(x *topicIndex) {
	if err := b.epochs.controller(x.controllerEpoch); err != nil {
		b.log.Error("recording the controller epoch", "err", err)
	}
	before := b.topics.Swap(x)
	if before.settings != x.settings {
		b.throttles.configure(x.settings)
		b.replicas.dir.SetReserve(x.settings.DiskReserve())
	}
	b.changed.raise()
	if b.archive != nil && before.settings != x.settings {
		b.archive.SetCopyRate(x.settings.Int("remote.log.manager.copy.max.bytes.per.second"))
	}
}

// Endpoints are where clients reach this broker.
func (b *Broker) Endpoints() []meta.Endpoint {
	var es []meta.Endpoint
	for _, l := range b.server.listeners {
		es = append(es, l.endpoint)
	}
	return es
}

// Run joins the cluster and serves until ctx ends or a part of the broker fails.
// Then the connections are wound up first, while everything that their requests
// need still runs; last the logs are closed.
func (b *Broker) Run(ctx context.Context) (err error) {
	g, failed := errgroup.WithContext(context.WithoutCancel(ctx))
	background, stop := context.WithCancel(failed)
	defer stop()
	b.replicas.ctx = background
	defer func() {
		stop()
		err = errors.Join(err, g.Wait(), b.leave(context.WithoutCancel(ctx)))
	}()
	if err := b.join(ctx); err != nil {
		b.server.closeListeners()
		return err
	}
	for _, run := range b.parts() {
		g.Go(func() error { return run(background) })
	}
	serving, cancel := context.WithCancel(failed)
	defer cancel()
	g.Go(func() error { // a stop that is asked for has others lead first
		select {
		case <-ctx.Done():
			b.drain(failed)
			cancel()
		case <-serving.Done():
		}
		return nil
	})
	b.awaitRoles(ctx)
	close(b.ready)
	return b.server.run(serving)
}

// Ready is closed once Run serves clients.
func (b *Broker) Ready() <-chan struct{} { return b.ready }

// parts are what runs behind the connections until its ctx ends.
func (b *Broker) parts() []func(context.Context) error {
	return []func(context.Context) error{
		b.takePart,
		b.producerIDs.run,
		b.groups.run,
		b.followers.run,
		b.inSync.run,
		b.loops,
		b.runArchive,
		b.metaLook.run,
		b.archiveLook.run,
	}
}
