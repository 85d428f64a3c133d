package zktest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// Ensemble is the servers of one ZooKeeper.
type Ensemble struct {
	Nodes []*Node

	t       testing.TB
	chroots atomic.Int32
}

// Options are what a test wants other than usual. The zero value is the usual.
type Options struct {
	// Config is further lines of each server's configuration.
	Config []string
	// Properties are further Java system properties, name=value.
	Properties []string
	// Heap is each server's, as java's -Xmx takes it; "" means 128m.
	Heap string
	// Secure has each server take TLS on a port of its own, at Node.Secure.
	Secure bool
}

// Start starts one server, empty, and waits until it serves; it ends with the test.
func Start(t testing.TB) *Ensemble { return StartN(t, 1, Options{}) }

// StartN starts an ensemble of n servers and waits until all of them serve.
func StartN(t testing.TB, n int, o Options) *Ensemble {
	t.Helper()
	class := classpath(t)
	for range 3 {
		e := &Ensemble{t: t}
		ports := Ports(t, 4*n)
		for i := range n {
			p := ports[4*i:]
			e.Nodes = append(e.Nodes, &Node{
				Addr: address(p[0]), Secure: address(p[3]), id: i + 1, peers: [2]int{p[1], p[2]},
				t: t, dir: t.TempDir(), class: class, options: o,
			})
		}
		for _, node := range e.Nodes {
			node.configure(e.Nodes)
			node.launch()
			t.Cleanup(node.Kill)
		}
		if e.WaitServing(startTime) {
			return e
		}
		// A port that was free may have been taken by somebody faster.
		for _, node := range e.Nodes {
			t.Logf("ZooKeeper node %d at %s does not serve:\n%s", node.id, node.Addr, node.tail())
			node.Kill()
		}
	}
	t.Fatal("ZooKeeper does not start")
	return nil
}

// startTime is how long an ensemble may take to serve, on a machine so busy that a
// JVM's start alone takes most of a minute. One that ends is started anew at once.
const startTime = 3 * time.Minute

// Servers are the addresses of all servers, as zookeeper.connect takes them.
func (e *Ensemble) Servers() string {
	var list []string
	for _, n := range e.Nodes {
		list = append(list, n.Addr)
	}
	return strings.Join(list, ",")
}

// Chroot is Servers with a chroot that nobody has used.
func (e *Ensemble) Chroot() string {
	return fmt.Sprintf("%s/t%d", e.Servers(), e.chroots.Add(1))
}

// WaitServing waits until all servers that run serve clients.
func (e *Ensemble) WaitServing(limit time.Duration) bool {
	for deadline := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		all := true
		for _, n := range e.Nodes {
			if n.exited() && n.cmd != nil {
				return false
			}
			all = all && (n.cmd == nil || n.Mode() != "")
		}
		if all {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}

// Leader is the server that leads the ensemble, as soon as one does.
func (e *Ensemble) Leader() *Node {
	e.t.Helper()
	for deadline := time.Now().Add(startTime); ; time.Sleep(20 * time.Millisecond) {
		for _, n := range e.Nodes {
			if n.Mode() == "leader" {
				return n
			}
		}
		if time.Now().After(deadline) {
			e.t.Fatal("no ZooKeeper server leads")
		}
	}
}

func address(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// jars are what a server needs, as Debian names them.
var jars = []string{"zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-simple", "commons-cli", "metrics-core", "snappy-java",
	"netty-buffer", "netty-codec", "netty-common", "netty-handler", "netty-resolver", "netty-transport", "netty-transport-native-unix-common"}

func classpath(t testing.TB) string {
	t.Helper()
	if _, err := exec.LookPath("java"); err != nil {
		missing(t, "java")
	}
	var paths []string
	for _, jar := range jars {
		path := filepath.Join("/usr/share/java", jar+".jar")
		if _, err := os.Stat(path); err != nil {
			missing(t, path)
		}
		paths = append(paths, path)
	}
	return strings.Join(paths, string(filepath.ListSeparator))
}

func missing(t testing.TB, what string) {
	t.Helper()
	msg := "no ZooKeeper to test with: " + what + " is missing; run e2e/setup.sh debian"
	if os.Getenv("FIRN_REQUIRE") == "all" {
		t.Fatal(msg)
	}
	t.Skip(msg)
}
