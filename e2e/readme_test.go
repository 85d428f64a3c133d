package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"firn/e2e/harness"
	"firn/e2e/minio"
)

// readmeBlocks are the fenced blocks of one of README.md's sections.
func readmeBlocks(t *testing.T, heading string) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(harness.Root(), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(b), "\n"+heading+"\n")
	if !ok {
		t.Fatalf("README.md has no section %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var blocks []string
	for _, m := range regexp.MustCompile("(?s)\n```\n(.*?\n)```\n").FindAllStringSubmatch(section, -1) {
		blocks = append(blocks, m[1])
	}
	return blocks
}

// A terminal is a directory with a built firn in it and an environment in which
// the default ports are others, so that tests run beside each other.
type terminal struct {
	*testing.T
	dir string
	env []string
}

// command runs a shell's command, which the test ends if nobody else does.
func (s terminal) command(script string) *background {
	s.Helper()
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", script)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), s.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p := &background{cmd: cmd}
	cmd.Stdout, cmd.Stderr = p, p
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) // the group: what the shell started too
		_ = cmd.Wait()
		if s.Failed() {
			s.Logf("%s\n%s", script, p.String())
		}
	})
	return p
}

// try runs a line to its end; what goes wrong is at the end of what it prints.
func (s terminal) try(line string) (out string, ok bool) {
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", line)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), s.env...)
	var printed, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &errs
	cmd.WaitDelay = 30 * time.Second
	timer := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	if err := cmd.Run(); err != nil {
		return fmt.Sprintf("%s%s%v", printed.String(), errs.String(), err), false
	}
	return printed.String(), true
}

// run runs a line that must succeed.
func (s terminal) run(line string) string {
	s.Helper()
	out, ok := s.try(line)
	if !ok {
		s.Fatalf("%s\n%s", line, out)
	}
	return out
}

// background is a command that goes on, with what it has printed.
type background struct {
	cmd *exec.Cmd
	mu  sync.Mutex
	out bytes.Buffer
}

func (p *background) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

func (p *background) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// TestReadmeMinIO walks README's MinIO section, every line as it stands.
func TestReadmeMinIO(t *testing.T) {
	blocks := readmeBlocks(t, "## MinIO, or any S3")
	if len(blocks) != 2 {
		t.Fatalf("the section has %d blocks, of which 2 are tested", len(blocks))
	}
	store, kafka, admin := freeRun(t, 2), harness.FreePort(t), harness.FreePort(t) // MinIO's console listens on the next
	elsewhere := func(s string) string {
		return strings.ReplaceAll(s, "127.0.0.1:9000", fmt.Sprintf("127.0.0.1:%d", store))
	}

	dir, cache := t.TempDir(), t.TempDir()
	link(t, minio.Binary(t), filepath.Join(cache, "bin", "minio"))
	link(t, harness.Binary(t), filepath.Join(dir, "firn"))

	first := terminal{t, harness.Root(), []string{"FIRN_CACHE=" + cache, fmt.Sprint("MINIO_PORT=", store)}}
	shown := first.command("deploy/minio.sh")
	harness.Eventually(t, 30*time.Second, "MinIO is up", func() bool { return strings.Contains(shown.String(), "firn serve") }, shown.String)
	for line := range strings.Lines(elsewhere(blocks[0])) {
		line = strings.Replace(strings.TrimSpace(line), "./firn", "go run ./cmd/firn", 1)
		if !strings.Contains(shown.String(), line) {
			t.Errorf("minio.sh prints\n%s\nwithout %q", shown, line)
		}
	}

	second := terminal{t, dir, []string{fmt.Sprintf("KAFKA_LISTENERS=PLAINTEXT://127.0.0.1:%d", kafka),
		fmt.Sprintf("KAFKA_ADMIN_LISTENER=127.0.0.1:%d", admin), "KAFKA_LOG_RETENTION_CHECK_INTERVAL_MS=500"}}
	broker := second.command(elsewhere(blocks[0]))
	harness.Eventually(t, 30*time.Second, "the broker is ready", func() bool { return strings.Contains(broker.String(), "ready in") }, broker.String)

	third := terminal{t, dir, []string{fmt.Sprintf("FIRN_BROKERS=127.0.0.1:%d", kafka)}}
	var exports strings.Builder
	for line := range strings.Lines(blocks[1]) {
		line, _, _ = strings.Cut(line, " #")
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "export ") {
			exports.WriteString(line + "\n")
			continue
		}
		started := time.Now()
		var out string
		prints := func(what string, ok func() bool) { // in time: uploads and retention go on beside us
			harness.Eventually(t, time.Minute, line+" shows "+what, func() bool {
				var done bool
				out, done = third.try(exports.String() + line)
				return done && ok()
			}, func() string { return "\n" + out })
		}
		switch {
		case strings.Contains(line, "archive ls"):
			prints("objects", func() bool { return strings.Count(out, ".log") >= 10 })
		case strings.Contains(line, "topic describe"):
			prints("that the local copies go", func() bool { return localStart(t, out) > 500_000 })
		case strings.Contains(line, "archive verify"):
			prints("that all is well", func() bool { return strings.Contains(out, "0 problems") })
		default:
			out = third.run(line)
		}
		if p := strings.Contains(line, "| tail -1") || strings.Contains(line, "| wc -l"); p && strings.TrimSpace(out) != "1000000" {
			t.Errorf("%s prints %q", line, out)
		}
		t.Logf("%s: %.1f s\n%.800s", line, time.Since(started).Seconds(), out)
	}
}

// localStart finds LOCAL-START of the only partition that firn topic describe shows.
func localStart(t *testing.T, out string) (offset int64) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for i, l := range lines[:len(lines)-1] {
		heads, cells := strings.Fields(l), strings.Fields(lines[i+1])
		for j, h := range heads {
			if h == "LOCAL-START" && j < len(cells) {
				if _, err := fmt.Sscan(strings.ReplaceAll(cells[j], ",", ""), &offset); err != nil {
					t.Fatalf("%s: %v", out, err)
				}
				return offset
			}
		}
	}
	t.Fatalf("no LOCAL-START in\n%s", out)
	return 0
}

func link(t *testing.T, from, to string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(from, to); err != nil {
		t.Fatal(err)
	}
}
