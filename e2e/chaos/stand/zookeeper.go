package stand

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// ZooKeeper is a server of the ensemble.
type ZooKeeper struct {
	*Proc
	Addr string
}

// tick is ZooKeeper's, in milliseconds.
const tick = 500

// SessionTimeout is the brokers'.
const SessionTimeout = 2 * time.Second

// openZooKeeper starts the ensemble and waits until it serves.
func (s *Stand) openZooKeeper(ctx context.Context) error {
	class, err := classpath()
	if err != nil {
		return err
	}
	n := max(s.Config.ZooKeepers, 1)
	type member struct{ client, quorum, election string }
	members := make([]member, n)
	for i := range members {
		for _, p := range []*string{&members[i].client, &members[i].quorum, &members[i].election} {
			if *p, err = s.addr(); err != nil {
				return err
			}
		}
	}
	for i, m := range members {
		dir := filepath.Join(s.Config.Dir, fmt.Sprintf("zk%d", i+1))
		if err := os.MkdirAll(filepath.Join(dir, "data"), 0o755); err != nil {
			return err
		}
		lines := []string{
			fmt.Sprintf("tickTime=%d", tick), "initLimit=20", "syncLimit=6", "maxSessionTimeout=60000", "maxClientCnxns=0",
			"dataDir=" + filepath.Join(dir, "data"), "clientPortAddress=127.0.0.1", "clientPort=" + port(m.client),
			"admin.enableServer=false", "4lw.commands.whitelist=srvr",
		}
		if n > 1 {
			for j, o := range members {
				lines = append(lines, fmt.Sprintf("server.%d=127.0.0.1:%s:%s", j+1, port(o.quorum), port(o.election)))
			}
		}
		config := filepath.Join(dir, "zoo.cfg")
		if err := os.WriteFile(config, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "data", "myid"), fmt.Append(nil, i+1), 0o644); err != nil {
			return err
		}
		z := &ZooKeeper{Addr: m.client}
		z.Proc = &Proc{Name: fmt.Sprintf("zk%d", i+1), Log: dir + ".log", Command: func() *exec.Cmd {
			return exec.Command("java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
				"-Dzookeeper.forceSync=no", "-Dzookeeper.preAllocSize=64", "-Dzookeeper.jmx.log4j.disable=true",
				"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Djava.net.preferIPv4Stack=true",
				"-cp", class, "org.apache.zookeeper.server.quorum.QuorumPeerMain", config)
		}}
		s.ZK = append(s.ZK, z)
		if err := z.Start(); err != nil {
			return err
		}
	}
	return s.ServingZooKeeper(ctx)
}

// ServingZooKeeper waits until every server that runs serves.
func (s *Stand) ServingZooKeeper(ctx context.Context) error {
	for _, z := range s.ZK {
		for z.Running() && !z.Paused() && z.Mode() == "" {
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
				return fmt.Errorf("%s does not serve: %w\n%s", z.Name, context.Cause(ctx), z.Tail(2<<10))
			}
		}
	}
	return nil
}

// Mode is leader, follower or standalone; empty while it serves nobody.
func (z *ZooKeeper) Mode() string {
	conn, err := net.DialTimeout("tcp", z.Addr, time.Second)
	if err != nil {
		return ""
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return ""
	}
	answer, _ := io.ReadAll(conn) // a reset after the answer is no matter
	_, mode, _ := strings.Cut(string(answer), "Mode: ")
	mode, _, _ = strings.Cut(mode, "\n")
	return mode
}

func port(addr string) string {
	_, p, _ := net.SplitHostPort(addr)
	return p
}

// jars are what a server needs, as Debian names them.
var jars = []string{"zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-simple", "netty-all", "commons-cli", "metrics-core", "snappy-java"}

// ZooKeeperInstalled tells what is missing to start one.
func ZooKeeperInstalled() error {
	if _, err := exec.LookPath("java"); err != nil {
		return err
	}
	_, err := classpath()
	return err
}

func classpath() (string, error) {
	var paths []string
	for _, jar := range jars {
		path := filepath.Join("/usr/share/java", jar+".jar")
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("no ZooKeeper: run e2e/setup.sh debian: %w", err)
		}
		paths = append(paths, path)
	}
	return strings.Join(paths, string(filepath.ListSeparator)), nil
}
