package e2e

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"firn/e2e/harness"
)

// A broker that starts while ZooKeeper is away waits for it as long as
// zookeeper.connection.timeout.ms says, which is longer than a session, and says so;
// if it comes up the broker serves. A signal ends the wait at once, and its end is
// told with what was waited for.
func TestStartWaitsForZooKeeper(t *testing.T) {
	c := harness.PrepareCluster(t, harness.ClusterOptions{Brokers: 1, SessionMillis: 3000, Set: []string{"zookeeper.connection.timeout.ms=3600000"}})
	zk, b := c.ZooKeeper.Nodes[0], c.Broker(1)
	waits := func() int { return strings.Count(b.Log(), "waiting for ZooKeeper") }
	start := func(times int) {
		t.Helper()
		before := waits()
		b.Start()
		harness.Eventually(t, time.Minute, "a broker that says that it waits", func() bool { return waits() >= before+times || !b.Runs() }, b.Log)
	}
	zk.Kill()
	start(2) // the second time is beyond the session timeout
	zk.Start()
	b.WaitReady()
	b.Stop()

	zk.Kill()
	start(1)
	if err := syscall.Kill(b.Pid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	b.WaitExit(time.Minute) // not the hour
	if strings.Contains(b.Log(), "out of reach") {
		t.Errorf("it has ended by itself:\n%s", b.Log())
	}

	b.SetArgs(append(b.Args(), "zookeeper.connection.timeout.ms=300")...)
	b.Start()
	b.WaitExit(time.Minute)
	if err := b.ExitErr(); err == nil || err.Error() != "exit status 1" || !strings.Contains(b.Log(), "gave no session within 300ms") {
		t.Errorf("ended with %v:\n%s", err, b.Log())
	}
}
