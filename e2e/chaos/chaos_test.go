package main

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"firn/e2e/chaos/stand"
	"firn/e2e/harness"
	"firn/e2e/minio"
)

// quick runs a small chaos run within a test.
func quick(t *testing.T, o options) {
	t.Helper()
	if testing.Short() {
		t.Skip("real processes")
	}
	if o.MinIO {
		minio.Binary(t)
	}
	o.Tempo, o.Share = 1, 0.1 // a tenth of what an idle machine does
	var out strings.Builder
	r := &run{dir: t.TempDir(), out: &out, p: progress{Options: o}, tool: tools{root: harness.Root(), cache: harness.Cache()}}
	err := r.main(t.Context())
	t.Log(out.String())
	if err != nil {
		for _, name := range []string{"b1.log", "b2.log", "b3.log"} {
			if b, err := os.ReadFile(filepath.Join(r.dir, name)); err == nil {
				t.Logf("the end of %s:\n%s", name, b[max(0, len(b)-8<<10):])
			}
		}
		t.Fatal(err)
	}
}

// TestSingleBroker kills, pauses and stops a broker, and breaks its store.
func TestSingleBroker(t *testing.T) {
	quick(t, options{Seed: 2, Duration: 25 * time.Second, Brokers: 1, MinIO: true, Partitions: 4,
		Faults: []string{"kill", "pause", "stop", "store-kill", "store-corrupt"}})
}

// TestCluster breaks three brokers, their links and their ZooKeeper.
func TestCluster(t *testing.T) {
	zookeeper(t)
	for _, c := range []struct {
		name   string
		seed   uint64
		faults []string
	}{
		{"brokers", 3, []string{"kill-leader", "kill-all", "pause-leader", "stop-controller", "rolling"}},
		{"links", 4, []string{"cut-peers", "stall", "repeat", "zk-expire", "zk-kill-quorum", "wipe"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			quick(t, options{Seed: c.seed, Duration: 60 * time.Second, Brokers: 3, ZooKeepers: 1, MinIO: true, Partitions: 6, Faults: c.faults})
		})
	}
}

func zookeeper(t *testing.T) {
	t.Helper()
	if err := stand.ZooKeeperInstalled(); err != nil {
		harness.Missing(t, err.Error())
	}
}

// TestResume has a run of three kills, in about as many slices.
func TestResume(t *testing.T) {
	if testing.Short() {
		t.Skip("real processes")
	}
	dir := t.TempDir()
	o := options{Seed: 5, Duration: 5 * time.Minute, Slice: time.Second, Brokers: 1, Partitions: 2, Kills: 3, Tempo: 1}
	var out strings.Builder
	r := &run{dir: dir, out: &out, p: progress{Options: o}, tool: tools{root: harness.Root(), cache: harness.Cache()}}
	for slice := 1; ; slice++ {
		if err := r.main(t.Context()); err != nil {
			t.Fatalf("slice %d: %v\n%s", slice, err, out.String())
		}
		if strings.Contains(out.String(), "verdict: passed") {
			t.Log(out.String())
			break
		}
		p, err := resume(dir)
		if err != nil || slice == 100 { // there is at least one kill in each that isn't over before it begins
			t.Fatalf("after slice %d: %v\n%s", slice, err, out.String())
		}
		r = &run{dir: dir, out: &out, p: p, tool: r.tool}
	}
}

// TestPlan: the same seed gives the same faults, and all of them come up.
func TestPlan(t *testing.T) {
	of, err := chosen(stand.Config{Brokers: 1, MinIO: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	a, b := plan(7, of, 10*time.Minute), plan(7, of, 10*time.Minute)
	if !reflect.DeepEqual(steps(a), steps(b)) {
		t.Error("one seed gave two plans")
	}
	if reflect.DeepEqual(steps(a), steps(plan(8, of, 10*time.Minute))) {
		t.Error("two seeds gave one plan")
	}
	seen := map[string]int{}
	for _, s := range a {
		seen[s.fault.name]++
	}
	for i := range of {
		if seen[of[i].name] < 2 {
			t.Errorf("%s comes up %d times", of[i].name, seen[of[i].name])
		}
	}
}

func steps(p []step) (out []string) {
	for _, s := range p {
		out = append(out, fmt.Sprint(s.at, s.fault.name, s.lasts, s.seed))
	}
	return out
}

func TestInside(t *testing.T) {
	ws := []*window{{From: 10, To: 20}, {From: 30, To: 40}}
	for at, want := range map[time.Duration]*window{5: nil, 10: ws[0], 20: ws[0], 25: nil, 35: ws[1], 41: nil} {
		if got := inside(ws, at); got != want {
			t.Errorf("inside(%d) = %v, want %v", at, got, want)
		}
	}
}

// TestWindowsFile reads back what was written.
func TestWindowsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "windows.txt")
	want := []*window{{From: time.Second, To: 2 * time.Second, Promised: true, Name: "kill-leader", Hit: "[b1 b2]"}, {From: 3 * time.Second, To: 4 * time.Second, Name: "pause"}}
	for _, w := range want {
		if err := appendWindow(path, w); err != nil {
			t.Fatal(err)
		}
	}
	got, err := readWindows(path)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
}
