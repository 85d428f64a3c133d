package stand

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Proc is a process that is started, killed, paused and started again.
type Proc struct {
	Name string
	// Log is the file that its output is appended to.
	Log string
	// Command makes the command of the next start.
	Command func() *exec.Cmd

	mu struct {
		sync.Mutex
		cmd     *exec.Cmd
		done    chan struct{} // closed when it has ended
		err     error         // how it ended
		starts  int
		wanted  bool // nobody asked it to end
		deaths  int  // ends that nobody asked for
		paused  bool
		started time.Time
	}
}

// Start starts the process, which must not run.
func (p *Proc) Start() error {
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := p.Command()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = dieWithParent()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.runningLocked() {
		return fmt.Errorf("%s runs already", p.Name)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	done := make(chan struct{})
	p.mu.cmd, p.mu.done, p.mu.wanted, p.mu.paused, p.mu.started = cmd, done, true, false, time.Now()
	p.mu.starts++
	go func() {
		err := cmd.Wait()
		p.mu.Lock()
		p.mu.err = err
		if p.mu.wanted {
			p.mu.deaths++
		}
		p.mu.Unlock()
		close(done)
	}()
	return nil
}

func (p *Proc) runningLocked() bool {
	if p.mu.cmd == nil {
		return false
	}
	select {
	case <-p.mu.done:
		return false
	default:
		return true
	}
}

// Running tells whether the process runs, paused or not.
func (p *Proc) Running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.runningLocked()
}

// Deaths counts ends that nobody asked for.
func (p *Proc) Deaths() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.deaths
}

// Starts counts its starts.
func (p *Proc) Starts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.starts
}

// Kill ends the process by SIGKILL and waits for it.
func (p *Proc) Kill() { _ = p.end(syscall.SIGKILL, 10*time.Second) }

// Stop ends the process by SIGTERM, waits for it and tells whether it ended well.
func (p *Proc) Stop(limit time.Duration) error { return p.end(syscall.SIGTERM, limit) }

func (p *Proc) end(s syscall.Signal, limit time.Duration) error {
	p.mu.Lock()
	if !p.runningLocked() {
		p.mu.Unlock()
		return nil
	}
	p.mu.wanted = false
	cmd, done := p.mu.cmd, p.mu.done
	p.mu.Unlock()
	_ = cmd.Process.Signal(s)               // it may have ended by itself
	_ = cmd.Process.Signal(syscall.SIGCONT) // a paused one hears SIGTERM only then
	select {
	case <-done:
	case <-time.After(limit):
		_ = cmd.Process.Signal(syscall.SIGQUIT) // where each goroutine stands goes into the log
		select {
		case <-done:
		case <-time.After(5 * time.Second):
			_ = cmd.Process.Kill()
			<-done
		}
		return fmt.Errorf("%s still runs %v after %v", p.Name, limit, s)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if s == syscall.SIGTERM && p.mu.err != nil {
		return fmt.Errorf("%s: %w", p.Name, p.mu.err)
	}
	return nil
}

// Pause stops the process as SIGSTOP does; Resume lets it go on.
func (p *Proc) Pause() error  { return p.pause(true, syscall.SIGSTOP) }
func (p *Proc) Resume() error { return p.pause(false, syscall.SIGCONT) }

func (p *Proc) pause(paused bool, s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.runningLocked() {
		return nil
	}
	if err := p.mu.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("%s: %w", p.Name, err)
	}
	p.mu.paused = paused
	return nil
}

// Paused tells whether the process stands still.
func (p *Proc) Paused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.paused && p.runningLocked()
}

// Tail is the end of the log.
func (p *Proc) Tail(n int) string {
	b, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	if len(b) > n {
		b = b[len(b)-n:]
	}
	return string(b)
}

// Panics are lines of the log that no broker prints in good health.
func (p *Proc) Panics() []string {
	b, err := os.ReadFile(p.Log)
	if err != nil {
		return []string{err.Error()}
	}
	var out []string
	for line := range bytes.Lines(b) {
		for _, bad := range []string{"panic:", "fatal error:", "WARNING: DATA RACE", "panicked", "invariant"} {
			if bytes.Contains(line, []byte(bad)) {
				out = append(out, p.Name+": "+string(bytes.TrimSpace(line)))
				break
			}
		}
	}
	return out
}
