package stand

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"firn/e2e/chaos/link"
)

// Broker is a firn process. Clients and peers reach it through links.
type Broker struct {
	*Proc
	ID   int32
	Data string
	// Addr is what it listens on for clients, Advertised what they are told.
	Addr, Admin string
	Clients     *link.Link   // in front of the clients' listener
	Peers       *link.Link   // in front of the inter-broker listener, nil for a single broker
	ZK          []*link.Link // its own ways to each ZooKeeper server
	internal    string
}

// ports are a broker's listeners.
type ports struct {
	Client, Peer, Admin string
}

// newBroker prepares a broker without starting it.
func newBroker(id int32, at ports, c Config, zk []*ZooKeeper) (*Broker, error) {
	dir := c.Dir
	b := &Broker{ID: id, Data: filepath.Join(dir, fmt.Sprintf("b%d", id)), Addr: at.Client, Admin: at.Admin, internal: at.Peer}
	if err := os.MkdirAll(b.Data, 0o755); err != nil {
		return nil, err
	}
	var err error
	if b.Clients, err = link.New(at.Client); err != nil {
		return nil, err
	}
	if c.Brokers > 1 {
		if b.Peers, err = link.New(at.Peer); err != nil {
			return nil, err
		}
	}
	for _, z := range zk {
		l, err := link.NewZooKeeper(z.Addr)
		if err != nil {
			return nil, err
		}
		b.ZK = append(b.ZK, l)
	}
	b.Proc = &Proc{Name: fmt.Sprintf("b%d", id), Log: filepath.Join(dir, fmt.Sprintf("b%d.log", id)), Command: func() *exec.Cmd {
		args := []string{"serve", "--data", b.Data}
		for _, kv := range b.settings(c) {
			args = append(args, "--set", kv)
		}
		cmd := exec.Command(c.Binary, args...)
		cmd.Env = append(os.Environ(), append(c.Env, "GOMAXPROCS=2", "GOTRACEBACK=all")...)
		return cmd
	}}
	return b, nil
}

func (b *Broker) settings(c Config) []string {
	set := []string{
		"node.id=" + strconv.Itoa(int(b.ID)),
		"admin.listener=" + b.Admin,
		"group.initial.rebalance.delay.ms=0",
	}
	if b.Peers == nil {
		set = append(set, "listeners=PLAINTEXT://"+b.Addr, "advertised.listeners=PLAINTEXT://"+b.Clients.Addr)
	} else {
		set = append(set, "listeners=CLIENT://"+b.Addr+",PEER://"+b.internal,
			"advertised.listeners=CLIENT://"+b.Clients.Addr+",PEER://"+b.Peers.Addr,
			"listener.security.protocol.map=CLIENT:PLAINTEXT,PEER:PLAINTEXT", "inter.broker.listener.name=PEER")
	}
	if len(b.ZK) > 0 {
		var servers []string
		for _, l := range b.ZK {
			servers = append(servers, l.Addr)
		}
		set = append(set, "zookeeper.connect="+strings.Join(servers, ","), fmt.Sprintf("zookeeper.session.timeout.ms=%d", SessionTimeout.Milliseconds()),
			"zookeeper.connection.timeout.ms=30000",
			"default.replication.factor=3", "offsets.topic.replication.factor=3", "offsets.topic.num.partitions=5", "min.insync.replicas=2")
	}
	if c.archive != "" {
		set = append(set, "archive.url="+c.archive)
	}
	return append(set, c.Set...)
}

// Ready waits until the broker says that it serves.
func (b *Broker) Ready(ctx context.Context) error {
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		if code, _ := b.Get(ctx, "/readyz"); code == http.StatusOK {
			return nil
		}
		if !b.Running() {
			return fmt.Errorf("%s ended before it was ready:\n%s", b.Name, b.Tail(4<<10))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			tick.Stop()
			_, why := b.Get(context.Background(), "/readyz")
			return fmt.Errorf("%s is not ready: %w\n%s\n%s", b.Name, context.Cause(ctx), why, b.Tail(4<<10))
		}
	}
}

// Get asks the admin listener; the code is 0 if nobody answers.
func (b *Broker) Get(ctx context.Context, path string) (int, string) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.Admin+path, nil)
	if err != nil {
		return 0, err.Error()
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(body)
}

// Metrics sums each metric up over its labels; nil if the broker does not answer.
func (b *Broker) Metrics(ctx context.Context) map[string]float64 {
	code, body := b.Get(ctx, "/metrics")
	if code != http.StatusOK {
		return nil
	}
	sums := map[string]float64{}
	for line := range strings.Lines(body) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if i := strings.LastIndexByte(line, ' '); ok && i > 0 {
			value = strings.TrimSpace(line[i+1:])
		}
		name, labels, _ := strings.Cut(name, "{")
		v, err := strconv.ParseFloat(value, 64)
		if !ok || err != nil || strings.HasPrefix(name, "#") {
			continue
		}
		sums[name] += v
		if _, after, ok := strings.Cut(labels, `outcome="`); ok {
			outcome, _, _ := strings.Cut(after, `"`)
			sums[name+"/"+outcome] += v
		}
	}
	return sums
}

// Wipe takes the data directory away; the broker must not run.
func (b *Broker) Wipe() error {
	if err := os.RemoveAll(b.Data); err != nil {
		return err
	}
	return os.MkdirAll(b.Data, 0o755)
}

func (b *Broker) close() {
	b.Kill()
	b.Clients.Close()
	if b.Peers != nil {
		b.Peers.Close()
	}
	for _, l := range b.ZK {
		l.Close()
	}
}
