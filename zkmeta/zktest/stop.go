package zktest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Stop stops a process and waits until it stands still. The signal alone is a
// request: on a busy machine threads answer clients for a while after it.
func Stop(p *os.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for !stopped(p.Pid) {
		time.Sleep(time.Millisecond)
	}
	return nil
}

// stopped: no thread of the process can run, because it is stopped or has ended. Where there is no /proc nobody can
// tell, and the signal has to do.
func stopped(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, t := range threads {
		stat, err := os.ReadFile(t)
		if err != nil {
			continue // it has ended
		}
		// "pid (name) state …", and a name may hold anything.
		state := stat[bytes.LastIndexByte(stat, ')')+1:]
		if !bytes.HasPrefix(state, []byte(" T")) && !bytes.HasPrefix(state, []byte(" Z")) {
			return false
		}
	}
	return true
}
