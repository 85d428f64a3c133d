//go:build failpoints

package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"firn/segment/vfs"
)

// faulty is fs with the failpoints of a disk; fs itself if none is asked for.
func faulty(fs vfs.FS, failpoint func(name string) error) vfs.FS {
	if !strings.Contains(os.Getenv("FIRN_FAILPOINTS"), "vfs.") {
		return fs
	}
	return vfs.Inject(fs, func(op vfs.Op) error {
		if op.Kind == vfs.OpSync && strings.HasSuffix(op.Name, ".log") {
			return failpoint("vfs.sync")
		}
		return nil
	})
}

// failpoints reads FIRN_FAILPOINTS: "name=action,name=action". An action is
// kill (SIGKILL to ourselves), error, or sleep:DURATION; "@N" after it waits for
// the N-th pass. The point says on standard error that it fired.
func failpoints() func(name string) error {
	spec := os.Getenv("FIRN_FAILPOINTS")
	if spec == "" {
		return nil
	}
	type point struct {
		action string
		after  int
	}
	var mu sync.Mutex
	points := map[string]*point{}
	for _, p := range strings.Split(spec, ",") {
		name, action, _ := strings.Cut(p, "=")
		action, at, _ := strings.Cut(action, "@")
		n, err := strconv.Atoi(at)
		if err != nil {
			n = 1
		}
		points[name] = &point{action, n}
	}
	return func(name string) error {
		mu.Lock()
		p := points[name]
		fire := false
		if p != nil {
			p.after--
			fire = p.after == 0
		}
		mu.Unlock()
		if !fire {
			return nil
		}
		fmt.Fprintf(os.Stderr, "failpoint %s fired: %s\n", name, p.action)
		if d, ok := strings.CutPrefix(p.action, "sleep:"); ok {
			pause, err := time.ParseDuration(d)
			if err != nil {
				return fmt.Errorf("failpoint %s: %w", name, err)
			}
			time.Sleep(pause)
			return nil
		}
		if p.action == "kill" {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // the signal takes a moment
		}
		return fmt.Errorf("failpoint %s", name)
	}
}
