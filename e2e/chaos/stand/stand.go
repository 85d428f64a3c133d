package stand

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"firn/zkmeta/zktest"
)

// Config says what to set up.
type Config struct {
	// Dir is where everything lies; what a former stand left there is used.
	Dir string
	// Root is the repository's root, and Cache where e2e/setup.sh puts its tools.
	Root, Cache string
	// Binary is firn; "" builds it.
	Binary string
	// Build are more arguments for go build, such as an overlay.
	Build []string
	// Brokers is 1, without ZooKeeper, or more.
	Brokers int
	// ZooKeepers is 1 or 3, with more than one broker.
	ZooKeepers int
	// MinIO archives to a MinIO process; otherwise to a directory.
	MinIO bool
	// Set are the brokers' settings, Env their environment.
	Set, Env []string

	archive string
}

// Stand is a running cluster.
type Stand struct {
	Config  Config
	Brokers []*Broker
	Store   *Store       // nil: a directory
	ZK      []*ZooKeeper // empty: a single broker

	release []func() // of ports
}

// Open sets a stand up and waits until it serves.
func Open(ctx context.Context, c Config) (*Stand, error) {
	s := &Stand{Config: c}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Stand) open(ctx context.Context) (err error) {
	c := &s.Config
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return err
	}
	if c.Binary == "" {
		if c.Binary, err = Build(ctx, c.Root, filepath.Join(c.Dir, "firn"), c.Build...); err != nil {
			return err
		}
	}
	if c.MinIO {
		addr, err := s.addr()
		if err != nil {
			return err
		}
		if s.Store, err = newStore(c.Dir, filepath.Join(c.Cache, "bin", "minio"), addr); err != nil {
			return err
		}
		if err = s.Store.Start(); err != nil {
			return err
		}
		if err = s.Store.Ready(ctx); err != nil {
			return err
		}
		c.archive = s.Store.URL(false)
		c.Env = append(c.Env, "AWS_ACCESS_KEY_ID="+accessKey, "AWS_SECRET_ACCESS_KEY="+secretKey)
	} else {
		c.archive = "file://" + filepath.Join(c.Dir, "archive") + "?create=true"
	}
	if c.Brokers > 1 {
		if err := s.openZooKeeper(ctx); err != nil {
			return err
		}
	}
	for i := range c.Brokers {
		var at ports
		for _, p := range []*string{&at.Client, &at.Peer, &at.Admin} {
			if *p, err = s.addr(); err != nil {
				return err
			}
		}
		b, err := newBroker(int32(i+1), at, *c, s.ZK)
		if err != nil {
			return err
		}
		s.Brokers = append(s.Brokers, b)
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, b := range s.Brokers {
		if err := b.Start(); err != nil {
			return err
		}
		g.Go(func() error { return b.Ready(ctx) })
	}
	return g.Wait()
}

// addr is an address of the loopback for a server that may end and start again: nobody
// else has it until Close.
func (s *Stand) addr() (string, error) {
	ports, release, err := zktest.HoldPorts(1)
	if err != nil {
		return "", err
	}
	s.release = append(s.release, release)
	return fmt.Sprintf("127.0.0.1:%d", ports[0]), nil
}

// Archive is the URL of the archive without any fault between, and sets this
// process's credentials for it.
func (s *Stand) Archive() string {
	if s.Store == nil {
		return s.Config.archive
	}
	os.Setenv("AWS_ACCESS_KEY_ID", accessKey)
	os.Setenv("AWS_SECRET_ACCESS_KEY", secretKey)
	return s.Store.URL(true)
}

// Seeds are where clients start from.
func (s *Stand) Seeds() []string {
	var seeds []string
	for _, b := range s.Brokers {
		seeds = append(seeds, b.Clients.Addr)
	}
	return seeds
}

// StopBrokers stops them in order, so that their logs lie still.
func (s *Stand) StopBrokers(limit time.Duration) error {
	var err error
	for _, b := range s.Brokers {
		err = errors.Join(err, b.Stop(limit))
	}
	return err
}

// Close ends everything; the directory stays.
func (s *Stand) Close() error {
	for _, b := range s.Brokers {
		b.close()
	}
	for _, z := range s.ZK {
		z.Kill()
	}
	if s.Store != nil {
		s.Store.Kill()
		s.Store.Proxy.Close()
	}
	for _, release := range s.release {
		release()
	}
	return nil
}

// Build builds firn with its failpoints.
func Build(ctx context.Context, root, to string, more ...string) (string, error) {
	to, err := filepath.Abs(to)
	if err != nil {
		return "", err
	}
	args := append([]string{"build", "-tags", "failpoints", "-o", to}, more...)
	cmd := exec.CommandContext(ctx, "go", append(args, "./cmd/firn")...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build firn: %w\n%s", err, out)
	}
	return to, nil
}
