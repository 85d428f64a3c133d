package zktest

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Node is one server. A test uses it from one goroutine.
type Node struct {
	// Addr is where it takes clients, Secure where it takes them by TLS.
	Addr, Secure string

	t       testing.TB
	id      int
	peers   [2]int // ports of the ensemble's own
	dir     string
	class   string
	options Options

	cmd    *exec.Cmd // nil while it is down
	gone   chan struct{}
	paused bool
}

// configure writes the configuration file.
func (n *Node) configure(all []*Node) {
	data := filepath.Join(n.dir, "data")
	_, port, _ := net.SplitHostPort(n.Addr)
	lines := []string{
		"tickTime=500", "initLimit=20", "syncLimit=6", "maxSessionTimeout=60000", "maxClientCnxns=0",
		"dataDir=" + data, "clientPortAddress=127.0.0.1", "clientPort=" + port,
		"admin.enableServer=false", "4lw.commands.whitelist=srvr",
	}
	if n.options.Secure {
		_, port, _ := net.SplitHostPort(n.Secure)
		lines = append(lines, "secureClientPort="+port, "secureClientPortAddress=127.0.0.1",
			"serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory")
	}
	if len(all) > 1 {
		for _, m := range all {
			lines = append(lines, fmt.Sprintf("server.%d=127.0.0.1:%d:%d", m.id, m.peers[0], m.peers[1]))
		}
	}
	lines = append(lines, n.options.Config...)
	n.check(os.MkdirAll(data, 0o755))
	n.check(os.WriteFile(filepath.Join(data, "myid"), fmt.Append(nil, n.id), 0o644))
	n.check(os.WriteFile(n.config(), []byte(strings.Join(lines, "\n")+"\n"), 0o644))
}

func (n *Node) config() string { return filepath.Join(n.dir, "zoo.cfg") }

func (n *Node) check(err error) {
	if err != nil {
		n.t.Helper()
		n.t.Fatal(err)
	}
}

// launch starts the process and waits for nothing.
func (n *Node) launch() {
	n.t.Helper()
	log, err := os.OpenFile(filepath.Join(n.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	n.check(err)
	defer log.Close()
	heap := n.options.Heap
	if heap == "" {
		heap = "128m"
	}
	args := []string{"-Xmx" + heap, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
		"-Dzookeeper.forceSync=no", "-Dzookeeper.preAllocSize=64", "-Dzookeeper.jmx.log4j.disable=true",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Djava.net.preferIPv4Stack=true"}
	for _, p := range n.options.Properties {
		args = append(args, "-D"+p)
	}
	args = append(args, "-cp", n.class, "org.apache.zookeeper.server.quorum.QuorumPeerMain", n.config())
	n.cmd = exec.Command("java", args...)
	n.cmd.Stdout, n.cmd.Stderr = log, log
	n.check(n.cmd.Start())
	gone, cmd := make(chan struct{}), n.cmd
	n.gone = gone
	go func() { cmd.Wait(); close(gone) }()
}

func (n *Node) exited() bool {
	select {
	case <-n.gone:
		return true
	default:
		return false
	}
}

// Start brings a server back that was killed, with its data, and waits until it
// serves, which it does only if its ensemble has a quorum.
func (n *Node) Start() {
	n.t.Helper()
	n.Launch()
	for deadline := time.Now().Add(startTime); n.Mode() == ""; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) || n.exited() {
			n.t.Fatalf("ZooKeeper node %d does not serve:\n%s", n.id, n.tail())
		}
	}
}

// Launch is Start without waiting.
func (n *Node) Launch() {
	n.t.Helper()
	if n.cmd == nil {
		n.launch()
	}
}

// Kill ends the server at once, as a crash would.
func (n *Node) Kill() {
	if n.cmd == nil {
		return
	}
	n.cmd.Process.Kill()
	<-n.gone
	n.cmd, n.paused = nil, false
}

// Pause stops the process: the kernel still takes connections for it.
func (n *Node) Pause() {
	n.t.Helper()
	n.check(Stop(n.cmd.Process))
	n.paused = true
}

// Resume has a paused server go on.
func (n *Node) Resume() {
	n.t.Helper()
	n.check(n.cmd.Process.Signal(syscall.SIGCONT))
	n.paused = false
}

// Wipe removes the data of a server that is down.
func (n *Node) Wipe() {
	n.t.Helper()
	n.check(os.RemoveAll(filepath.Join(n.dir, "data", "version-2")))
}

// SaveData copies the data of a server that is down; RestoreData brings it back.
func (n *Node) SaveData() {
	n.t.Helper()
	n.check(os.RemoveAll(filepath.Join(n.dir, "saved")))
	n.check(os.CopyFS(filepath.Join(n.dir, "saved"), os.DirFS(filepath.Join(n.dir, "data", "version-2"))))
}

// RestoreData brings back what SaveData has copied: a roll-back.
func (n *Node) RestoreData() {
	n.t.Helper()
	n.Wipe()
	n.check(os.CopyFS(filepath.Join(n.dir, "data", "version-2"), os.DirFS(filepath.Join(n.dir, "saved"))))
}

// Mode is leader, follower or standalone; empty while it serves nobody.
func (n *Node) Mode() string {
	if n.cmd == nil || n.paused {
		return ""
	}
	conn, err := net.DialTimeout("tcp", n.Addr, time.Second)
	if err != nil {
		return ""
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(2 * time.Second))
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return ""
	}
	answer, _ := io.ReadAll(conn) // a reset after the answer is no matter
	_, mode, _ := strings.Cut(string(answer), "Mode: ")
	mode, _, _ = strings.Cut(mode, "\n")
	return mode
}

// tail is the end of the server's log.
func (n *Node) tail() string {
	b, _ := os.ReadFile(filepath.Join(n.dir, "log"))
	return string(b[max(0, len(b)-4000):])
}
