package e2e

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"firn/e2e/harness"
	"firn/e2e/minio"
	"firn/zkmeta/zktest"
)

// freeRun is the first of n free ports in a row, below those that the kernel gives
// away: a busy machine has few of these left, and none in a row.
func freeRun(t *testing.T, n int) int {
	t.Helper()
	for range 100 {
		first, free := 20_000+rand.IntN(12_000), true
		for p := first; p < first+n && free; p++ {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p))
			if free = err == nil; free {
				l.Close()
			}
		}
		if free {
			return first
		}
	}
	t.Fatalf("no %d free ports in a row", n)
	return 0
}

// TestMakeCluster: whichever of the processes of make cluster is killed, the page
// says which, the others go on, and it is there again; Ctrl-C stops all in order.
func TestMakeCluster(t *testing.T) {
	zktest.Start(t)                   // skips where ZooKeeper isn't installed
	if signal.Ignored(os.Interrupt) { // as a shell has it for what it starts in the background, and whoever that starts
		signal.Notify(make(chan os.Signal, 1), os.Interrupt)
		t.Cleanup(func() { signal.Ignore(os.Interrupt) })
	}
	cache, dir := t.TempDir(), t.TempDir()
	link(t, minio.Binary(t), filepath.Join(cache, "bin", "minio"))
	ports := freeRun(t, 8) // one run, so that no two of them are the same
	brokers, store, admin := ports, ports+3, ports+5
	page := terminal{t, harness.Root(), []string{"FIRN_CACHE=" + cache, "CLUSTER_DIR=" + dir, "OUTAGE_S=3", fmt.Sprint("PORT=", brokers),
		fmt.Sprint("MINIO_PORT=", store), fmt.Sprint("ZOOKEEPER_PORT=", harness.FreePort(t)), fmt.Sprint("ADMIN_PORT=", admin)}}
	shown := page.command("exec deploy/cluster.sh")
	says := func(words string) {
		t.Helper()
		harness.Eventually(t, 2*time.Minute, "the page says "+words, func() bool { return strings.Contains(shown.String(), words) }, shown.String)
	}
	says("Three brokers are up")
	if out, ok := page.try("exec deploy/cluster.sh"); ok || !strings.Contains(out, "is taken") {
		t.Errorf("a second one beside it: %s", out)
	}
	client := terminal{t, dir, []string{fmt.Sprintf("FIRN_BROKERS=127.0.0.1:%d,127.0.0.1:%d", brokers, brokers+1)}}
	client.run("./firn topic create events --partitions 3")
	for i, name := range []string{"minio", "zookeeper", "firn-3"} {
		client.run("kill -9 $(cat pids/" + name + ")")
		says(name + " HAS ENDED")
		client.run(fmt.Sprintf("echo %d | ./firn produce events", i))
		says(name + " is started again")
	}
	harness.Eventually(t, time.Minute, "all is well again", func() bool { _, ok := client.try("./firn cluster health"); return ok }, shown.String)
	if out := client.run("./firn consume events | sort | tr '\n' ' '"); out != "0 1 2 " {
		t.Errorf("consumed %q", out)
	}
	client.run("kill $(cat pids/firn-3); rm pids/firn-3")
	harness.Eventually(t, time.Minute, "broker 3 is away", func() bool {
		out, ok := client.try("./firn cluster status -o json")
		return ok && strings.Contains(out, `"away":[3]`)
	}, shown.String)
	client.run("touch pids/firn-3")
	harness.Eventually(t, time.Minute, "broker 3 is there again", func() bool {
		out, ok := client.try("./firn cluster status -o json")
		return ok && strings.Contains(out, `"away":[]`)
	}, shown.String)
	// As a terminal does it: to the whole group, of which only the script is one.
	if err := syscall.Kill(-shown.cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	says("stopping")
	_ = shown.cmd.Wait()
	if out, _ := client.try("for p in pids/*; do kill -0 $(cat $p) 2>&1 && echo $p lives; done"); strings.Contains(out, "lives") {
		t.Errorf("left behind: %s", out)
	}
}
