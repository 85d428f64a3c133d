package harness

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"firn/zkmeta/zktest"
)

// build makes the binary once per test process.
var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "firn-e2e-")
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "firn")
	cmd := exec.Command("go", "build", "-tags", "failpoints", "-o", bin, "./cmd/firn")
	cmd.Dir = Root()
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build firn: %w\n%s", err, out)
	}
	return bin, nil
})

// Binary is the path of firn, built with failpoints.
func Binary(t testing.TB) string {
	t.Helper()
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// Options set up a Firn.
type Options struct {
	// Data is the data directory; "" is a fresh temporary one.
	Data string
	// Set are --set pairs besides the listeners'.
	Set []string
	// Config is the text of a config file, "" for none (the archive profile).
	Config string
	// Env are variables besides the test's own.
	Env []string
	// Failpoints is FIRN_FAILPOINTS.
	Failpoints string
	// Internal gives the broker a listener for other brokers besides.
	Internal bool
}

// Firn is a running broker.
type Firn struct {
	Data        string
	Addr, Admin string
	// Internal is where other brokers come in, "" if there are none.
	Internal string
	opts     Options
	t        testing.TB

	cmd  *exec.Cmd
	done chan struct{}
	mu   struct {
		sync.Mutex
		log strings.Builder
		err error
	}
	ready chan struct{}
}

// FreePort finds a port that nobody listens on, and nobody else is given.
func FreePort(t testing.TB) int {
	t.Helper()
	return zktest.Ports(t, 1)[0]
}

// Start starts a broker and waits until it is ready.
func Start(t testing.TB, o Options) *Firn {
	t.Helper()
	f := prepare(t, o)
	f.Start()
	f.WaitReady()
	return f
}

// prepare chooses data directory and ports without starting anything.
func prepare(t testing.TB, o Options) *Firn {
	t.Helper()
	if o.Data == "" {
		o.Data = t.TempDir()
	}
	f := &Firn{Data: o.Data, opts: o, t: t}
	f.Addr = "127.0.0.1:" + strconv.Itoa(FreePort(t))
	f.Admin = "127.0.0.1:" + strconv.Itoa(FreePort(t))
	if o.Internal {
		f.Internal = "127.0.0.1:" + strconv.Itoa(FreePort(t))
	}
	t.Cleanup(func() {
		f.Resume() // a paused process ends too
		f.Kill()
		if t.Failed() {
			t.Logf("the broker's log:\n%s", tail(f.Log(), 16<<10))
		}
	})
	return f
}

func tail(s string, n int) string {
	if len(s) > n {
		return "…" + s[len(s)-n:]
	}
	return s
}

// SetFailpoints changes FIRN_FAILPOINTS for the next start.
func (f *Firn) SetFailpoints(s string) { f.opts.Failpoints = s }

// SetEnv changes the variables for the next start.
func (f *Firn) SetEnv(env ...string) { f.opts.Env = env }

// Args are the --set pairs.
func (f *Firn) Args() []string { return f.opts.Set }

// SetArgs changes the --set pairs for the next start.
func (f *Firn) SetArgs(set ...string) { f.opts.Set = set }

// Start starts the process.
func (f *Firn) Start() {
	f.t.Helper()
	listeners := "PLAINTEXT://" + f.Addr
	if f.Internal != "" {
		listeners += ",INTERNAL://" + f.Internal
	}
	args := []string{"serve", "--data", f.Data,
		"--set", "listeners=" + listeners, "--set", "advertised.listeners=" + listeners,
		"--set", "admin.listener=" + f.Admin, "--set", "group.initial.rebalance.delay.ms=0"}
	if f.opts.Config != "" {
		path := filepath.Join(f.t.TempDir(), "server.properties")
		if err := os.WriteFile(path, []byte(f.opts.Config), 0o644); err != nil {
			f.t.Fatal(err)
		}
		args = append(args, "--config", path)
	}
	if f.Internal != "" {
		args = append(args, "--set", "inter.broker.listener.name=INTERNAL", "--set", "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT")
	}
	for _, s := range f.opts.Set {
		args = append(args, "--set", s)
	}
	f.cmd = exec.Command(Binary(f.t), args...)
	f.cmd.Env = append(os.Environ(), append(f.opts.Env, "FIRN_FAILPOINTS="+f.opts.Failpoints)...)
	f.done, f.ready = make(chan struct{}), make(chan struct{})
	r, w, err := os.Pipe()
	if err != nil {
		f.t.Fatal(err)
	}
	f.cmd.Stdout, f.cmd.Stderr = w, w
	if err := f.cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	w.Close()
	go f.collect(f.cmd, r, f.ready, f.done)
}

// collect reads the process's output to its end, then reaps it.
func (f *Firn) collect(cmd *exec.Cmd, r io.ReadCloser, ready, done chan struct{}) {
	defer close(done)
	defer r.Close()
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	isReady := false
	for sc.Scan() {
		f.mu.Lock()
		f.mu.log.WriteString(sc.Text() + "\n")
		f.mu.Unlock()
		if !isReady && strings.Contains(sc.Text(), "ready in") {
			isReady = true
			close(ready)
		}
	}
	err := cmd.Wait()
	f.mu.Lock()
	f.mu.err = err
	f.mu.Unlock()
}

// WaitReady waits until the broker says that it is ready.
func (f *Firn) WaitReady() {
	f.t.Helper()
	select {
	case <-f.ready:
	case <-f.done:
		f.t.Fatalf("firn ended before it was ready: %v\n%s", f.ExitErr(), f.Log())
	case <-time.After(patience):
		f.t.Fatalf("firn is not ready after %v\n%s", patience, f.Log())
	}
}

// Log is what the process printed so far, over all its starts.
func (f *Firn) Log() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.log.String()
}

// ExitErr is how the process ended.
func (f *Firn) ExitErr() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.err
}

// Pid is the process id.
func (f *Firn) Pid() int { return f.cmd.Process.Pid }

// Kill ends the process by SIGKILL and waits for it.
func (f *Firn) Kill() { f.signal(syscall.SIGKILL) }

// Stop ends the process by SIGTERM and waits for it.
func (f *Firn) Stop() {
	f.t.Helper()
	f.signal(syscall.SIGTERM)
	if err := f.ExitErr(); err != nil {
		f.t.Errorf("firn stopped with %v\n%s", err, tail(f.Log(), 4<<10))
	}
}

// Runs: the process has been started and has not ended.
func (f *Firn) Runs() bool {
	if f.cmd == nil || f.cmd.Process == nil {
		return false
	}
	select {
	case <-f.done:
		return false
	default:
		return true
	}
}

func (f *Firn) signal(s syscall.Signal) {
	if !f.Runs() {
		return
	}
	_ = f.cmd.Process.Signal(s) // it may have ended by itself
	select {
	case <-f.done:
	case <-time.After(patience):
		_ = f.cmd.Process.Signal(syscall.SIGQUIT) // where each goroutine stands goes into the log
		select {
		case <-f.done:
		case <-time.After(5 * time.Second):
			_ = f.cmd.Process.Kill()
			<-f.done
		}
		f.t.Errorf("firn still runs %v after %v\n%s", patience, s, tail(f.Log(), 32<<10))
	}
}

// WaitExit waits until the process has ended by itself.
func (f *Firn) WaitExit(limit time.Duration) {
	f.t.Helper()
	select {
	case <-f.done:
	case <-time.After(max(limit, patience)):
		_ = f.cmd.Process.Signal(syscall.SIGQUIT)
		select {
		case <-f.done:
		case <-time.After(5 * time.Second):
		}
		f.t.Fatalf("firn still runs after %v\n%s", limit, tail(f.Log(), 32<<10))
	}
}

// Restart starts the process again and waits until it is ready.
func (f *Firn) Restart() {
	f.t.Helper()
	f.Start()
	f.WaitReady()
}

// Get asks the admin listener.
func (f *Firn) Get(path string) (int, string) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.Admin+path, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// patience is what every wait has at least: no verdict hangs on how fast a machine
// is that others use too.
const patience = 2 * time.Minute

// Eventually waits until ok says so, asking every 50 ms; state, if given, says
// how things stand when it gives up, which it doesn't before limit and patience are
// over.
func Eventually(t testing.TB, limit time.Duration, what string, ok func() bool, state ...func() string) {
	t.Helper()
	limit = max(limit, patience)
	deadline := time.Now().Add(limit)
	for !ok() {
		if time.Now().After(deadline) {
			for _, s := range state {
				what += ":" + s()
			}
			t.Fatalf("not after %v: %s", limit, what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
