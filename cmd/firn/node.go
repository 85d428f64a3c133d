package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"firn/broker"
	"firn/broker/console"
	"firn/replication/meta"
	"firn/segment/vfs"
	"firn/tiering"
	"firn/tiering/objstore"
	"firn/zkmeta/solo"
)

// metadata is where a broker's metadata is: in a file of its own, or in ZooKeeper.
type metadata interface {
	meta.Store
	io.Closer
}

// node is one broker with all that belongs to it, wired together.
type node struct {
	settings *settings
	log      *slog.Logger
	store    metadata
	broker   *broker.Broker
	admin    net.Listener // nil: none
	console  *console.Server
	archive  io.Closer // the archive's store, nil if it holds nothing open
}

// openNode opens metadata, listeners and archive, and starts nothing.
func openNode(ctx context.Context, s *settings, log *slog.Logger) (*node, error) {
	for _, dir := range []string{s.data, s.logs} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("data directory: %w", err)
		}
	}
	store, fresh, err := openMetadata(ctx, s, log)
	if err != nil {
		return nil, err
	}
	n := &node{settings: s, log: log, store: store}
	if err := n.wire(ctx, log, fresh); err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

// openMetadata opens the metadata store. fresh: it knows no cluster yet.
func openMetadata(ctx context.Context, s *settings, log *slog.Logger) (_ metadata, fresh bool, err error) {
	if s.zookeeper != "" {
		return openZooKeeper(ctx, s.config, log)
	}
	_, err = os.Stat(s.meta)
	fresh = errors.Is(err, fs.ErrNotExist)
	store, err := solo.Open(s.meta)
	if errors.Is(err, solo.ErrMoved) {
		return nil, false, fmt.Errorf("%s: %w by firn cluster adopt: start this broker with zookeeper.connect as it says there, and the broker.id that it had", s.data, err)
	}
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", s.data, err)
	}
	return store, fresh, nil
}

// fetchSessions is a number of slots as broker.Network has it: zero is its default.
func fetchSessions(slots int) int {
	if slots == 0 {
		return -1
	}
	return slots
}

func (n *node) wire(ctx context.Context, log *slog.Logger, fresh bool) error {
	c := n.settings.config
	ls, err := c.Listeners()
	if err != nil {
		return err
	}
	reg := prometheus.NewRegistry()
	// What a GC left alive, without the garbage since: the number to watch for leaks.
	liveHeap := collectors.GoRuntimeMetricsRule{Matcher: regexp.MustCompile(`^/gc/heap/live:bytes$`)}
	reg.MustRegister(
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(liveHeap)),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	failpoint := failpoints()
	cfg := broker.Config{
		NodeID:   nodeID(c.Int("node.id")),
		Settings: c,
		LogDir:   n.settings.logs,
		Meta:     n.store,
		FS:       faulty(vfs.OS(), failpoint),
		Network: broker.Network{
			MaxRequestBytes: int(c.Int("socket.request.max.bytes")),
			QueuedBytes:     int(c.Int("queued.max.request.bytes")),
			MaxConnections:  int(c.Int("max.connections")),
			MaxIdle:         c.Millis("connections.max.idle.ms"),
			SendBufferBytes: int(c.Int("socket.send.buffer.bytes")), ReceiveBufferBytes: int(c.Int("socket.receive.buffer.bytes")),
			FetchMaxBytes: int(c.Int("fetch.max.bytes")),
			FetchSessions: fetchSessions(int(c.Int("max.incremental.fetch.session.cache.slots"))),
		},
		Log:       log,
		Metrics:   reg,
		Failpoint: failpoint,
	}
	if n.settings.archive != "" {
		if cfg.Archive, cfg.ArchiveWait, err = n.openArchive(ctx, log, reg, fresh, storeWait); err != nil {
			return err
		}
		cfg.CacheDir = n.settings.cache
	}
	for _, l := range ls {
		cfg.Listeners = append(cfg.Listeners, broker.Listener{Name: l.Name, Host: l.Host, Port: l.Port,
			AdvertisedHost: l.AdvertisedHost, AdvertisedPort: l.AdvertisedPort})
	}
	if n.broker, err = broker.New(cfg); err != nil {
		return err
	}
	if addr := c.String("admin.listener"); addr != "" {
		if n.admin, err = net.Listen("tcp", addr); err != nil {
			return fmt.Errorf("admin.listener: %w (another address: --set admin.listener=HOST:PORT; none: --set admin.listener=)", err)
		}
		n.console = console.New(console.Config{Source: health{n}, Gatherer: reg, Log: log})
	}
	return nil
}

// openArchive opens the archive's store and tries it, for as long as patience. A
// broker that has used it before starts without it, degraded; a new one doesn't,
// so that a wrong URL shows at once. wait is how long the broker may wait for a store
// that did not work, 0 for one that did.
func (n *node) openArchive(ctx context.Context, log *slog.Logger, reg prometheus.Registerer, fresh bool, patience time.Duration) (_ objstore.Store, wait time.Duration, err error) {
	c, until := n.settings.config, time.Now().Add(patience)
	ctx, cancel := context.WithDeadlineCause(ctx, until, fmt.Errorf("no answer within %v", patience))
	defer cancel()
	defer time.AfterFunc(patience/5, func() {
		log.Warn("waiting for the archive's store, which has not answered yet", "url", n.settings.archive, "until", until.Format(time.TimeOnly))
	}).Stop()
	opened, err := tiering.OpenStore(ctx, n.settings.archive, tiering.OpenOptions{
		Create:           n.settings.archiveIsDefault,
		MinFree:          c.DiskReserve(),
		AllowUnreachable: !fresh,
	})
	if err != nil {
		return nil, 0, err
	}
	n.archive, _ = opened.(io.Closer)
	store := objstore.Measured(opened, reg)
	if err := objstore.Probe(ctx, store); err != nil {
		if fresh || errors.Is(err, objstore.ErrDenied) {
			return nil, 0, err
		}
		log.Warn("the archive does not work now; serving without it until it does", "err", err)
		wait = max(time.Until(until), time.Second)
	}
	return store, wait, nil
}

// storeWait bounds what a start asks of the store, as producing needs no archive.
const storeWait = 10 * time.Second

// nodeID is Kafka's broker id; a broker that was given none is broker 1.
func nodeID(configured int64) int32 {
	if configured < 0 {
		return 1
	}
	return int32(configured)
}

// run serves until ctx ends or a part does. ready is called once, when clients
// are served.
func (n *node) run(ctx context.Context, ready func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer cancel()
		return n.broker.Run(gctx)
	})
	if n.console != nil {
		g.Go(func() error { return n.console.Run(gctx, n.admin) })
	}
	select {
	case <-n.broker.Ready():
		ready()
	case <-gctx.Done():
	}
	<-gctx.Done()
	began := time.Now()
	n.log.Info("stopping", "why", context.Cause(gctx))
	err := errors.Join(g.Wait(), n.close())
	if err != nil {
		n.log.Error("stopped", "seconds", time.Since(began).Seconds(), "err", err)
	} else {
		n.log.Info("stopped", "seconds", time.Since(began).Seconds())
	}
	return err
}

// close lets go of what openNode opened and run has not closed.
func (n *node) close() error {
	var err error
	if n.archive != nil {
		err = n.archive.Close()
	}
	return errors.Join(err, n.store.Close())
}

// embedded is a broker in this process, for the demo.
type embedded struct {
	addr   string
	cancel context.CancelFunc
	done   chan error
	err    error
	ended  bool
}

// startEmbedded starts a broker on a free port of the loopback and waits until
// it serves.
func startEmbedded(ctx context.Context, data string, set map[string]string) (*embedded, error) {
	src := sources{data: data, set: []string{"listeners=PLAINTEXT://127.0.0.1:0", "admin.listener="}}
	for k, v := range set {
		src.set = append(src.set, k+"="+v)
	}
	s, err := load(src)
	if err != nil {
		return nil, err
	}
	logFile, err := os.Create(filepath.Join(data, "firn.log"))
	if err != nil {
		return nil, fmt.Errorf("log file: %w", err)
	}
	n, err := openNode(ctx, s, logger("text", logFile))
	if err != nil {
		return nil, errors.Join(err, logFile.Close())
	}
	rctx, cancel := context.WithCancel(ctx)
	e := &embedded{cancel: cancel, done: make(chan error, 1)}
	up := make(chan struct{})
	go func() {
		err := n.run(rctx, func() { close(up) })
		e.done <- errors.Join(err, logFile.Close())
	}()
	select {
	case <-up:
	case err := <-e.done:
		cancel()
		return nil, fmt.Errorf("the broker ended before it was ready: %w", err)
	case <-time.After(time.Minute):
		return nil, errors.Join(errors.New("the broker is not ready after a minute"), e.stop())
	}
	ep := n.broker.Endpoints()[0]
	e.addr = net.JoinHostPort(ep.Host, fmt.Sprint(ep.Port))
	return e, nil
}

// stop ends the broker and waits for it; a second call tells the same.
func (e *embedded) stop() error {
	if !e.ended {
		e.cancel()
		e.err, e.ended = <-e.done, true
	}
	return e.err
}
