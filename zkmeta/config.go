package zkmeta

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"
)

// Config says where ZooKeeper is and how to talk to it.
type Config struct {
	// Connect is Kafka's zookeeper.connect: host:port,host:port/chroot.
	Connect string
	// SessionTimeout is what is asked for; the server bounds it. 0 means 18 s, as
	// in Kafka.
	SessionTimeout time.Duration
	// ConnectTimeout bounds how long Open waits for the first session. 0 means
	// SessionTimeout.
	ConnectTimeout time.Duration
	// MaxInFlight bounds the requests on their way. 0 means 10, as in Kafka.
	MaxInFlight int
	// Digest, "user:password", is who we are by ZooKeeper's digest scheme.
	Digest string
	// SetACL lets only us change what we create, by Digest or by the client
	// certificate. What isn't secret stays readable for everybody, as in Kafka.
	SetACL bool
	// TLS is nil for plain connections.
	TLS *tls.Config
	Log *slog.Logger
	// Dial is net.Dialer's if nil.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

const (
	defaultSessionTimeout = 18 * time.Second
	defaultInFlight       = 10
)

// ErrConfig: what Config says can't be.
var ErrConfig = errors.New("zkmeta: configuration")

// withDefaults fills in what is zero.
func (c Config) withDefaults() Config {
	if c.SessionTimeout == 0 {
		c.SessionTimeout = defaultSessionTimeout
	}
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = c.SessionTimeout
	}
	if c.MaxInFlight == 0 {
		c.MaxInFlight = defaultInFlight
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Dial == nil {
		c.Dial = new(net.Dialer).DialContext
	}
	return c
}

// check refuses what could not work, or would leave open what was to be closed.
func (c Config) check() error {
	if c.SetACL && c.Digest == "" && (c.TLS == nil || len(c.TLS.Certificates) == 0) {
		return fmt.Errorf("%w: access lists are to be set, but there is neither a digest user nor a client certificate whose they could be", ErrConfig)
	}
	if c.Digest != "" && !strings.Contains(c.Digest, ":") {
		return fmt.Errorf("%w: the digest credentials are not of the form user:password", ErrConfig)
	}
	return nil
}

// parseConnect takes zookeeper.connect apart: servers, each with its port, and
// the chroot, "" for none.
func parseConnect(s string) (servers []string, chroot string, err error) {
	list := strings.TrimSpace(s)
	if i := strings.IndexByte(list, '/'); i >= 0 {
		list, chroot = list[:i], strings.TrimRight(list[i:], "/")
	}
	if err := checkChroot(chroot); err != nil {
		return nil, "", fmt.Errorf("%w: zookeeper.connect %q: %w", ErrConfig, s, err)
	}
	for server := range strings.SplitSeq(list, ",") {
		if server = strings.TrimSpace(server); server == "" {
			continue
		}
		address, err := withPort(server)
		if err != nil {
			return nil, "", fmt.Errorf("%w: zookeeper.connect %q: %w", ErrConfig, s, err)
		}
		servers = append(servers, address)
	}
	if len(servers) == 0 {
		return nil, "", fmt.Errorf("%w: zookeeper.connect %q names no server", ErrConfig, s)
	}
	return servers, chroot, nil
}

// clientPort is ZooKeeper's port where none is given.
const clientPort = "2181"

func withPort(server string) (string, error) {
	host, port, err := net.SplitHostPort(server)
	if err != nil {
		host, port = strings.Trim(server, "[]"), clientPort
		if strings.Contains(host, ":") && !strings.HasPrefix(server, "[") {
			return "", fmt.Errorf("server %q: write an IPv6 address in brackets", server)
		}
	}
	if n, err := strconv.ParseUint(port, 10, 16); host == "" || err != nil || n == 0 {
		return "", fmt.Errorf("server %q is not host:port", server)
	}
	return net.JoinHostPort(host, port), nil
}

func checkChroot(chroot string) error {
	if chroot == "" {
		return nil
	}
	if chroot == "/zookeeper" || strings.HasPrefix(chroot, "/zookeeper/") {
		return fmt.Errorf("%s is ZooKeeper's own", chroot)
	}
	for name := range strings.SplitSeq(chroot[1:], "/") {
		if name == "" || name == "." || name == ".." || strings.ContainsAny(name, ",:") {
			return fmt.Errorf("the path %q after the servers is not one; a chroot is given once, at the end", chroot)
		}
	}
	return nil
}
