package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// layer is what must notice.
type layer struct {
	// pkg is tested, by these tests; or command is run, with the overlay in place
	// of OVERLAY.
	pkg     string
	tests   []string
	command []string
}

func unit(pkg string, tests ...string) layer { return layer{pkg: pkg, tests: tests} }

func process(line string) layer { return layer{command: strings.Fields(line)} }

// alone: it must not run beside others.
func (l layer) alone() bool { return l.command != nil }

// key is the same for what can share a run without a change.
func (l layer) key() string {
	if l.command != nil {
		return strings.Join(l.command, " ")
	}
	return l.pkg
}

func (l layer) String() string { return strings.Join(append([]string{l.key()}, l.tests...), " ") }

// with adds tests.
func (l layer) with(tests []string) layer {
	l.tests = slices.Clone(l.tests)
	for _, t := range tests {
		if !slices.Contains(l.tests, t) {
			l.tests = append(l.tests, t)
		}
	}
	return l
}

// longest is how long one run may take.
const longest = 8 * time.Minute

// outcome is what came of a run.
type outcome struct {
	failed, hung, broken bool // it did not pass, ended by a timeout, did not build
	out                  string
	cpu                  time.Duration
}

// run runs a layer.
func (l layer) run(ctx context.Context, root, overlay string) (o outcome, err error) {
	limit, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	args := l.arguments(overlay)
	cmd := exec.CommandContext(limit, args[0], args[1:]...)
	cmd.Dir, cmd.WaitDelay = root, 5*time.Second
	if overlay != "" {
		cmd.Env = append(os.Environ(), "TMPDIR="+filepath.Dir(overlay)) // what a failed run leaves goes with us
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	b, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return o, ctx.Err()
	}
	var exit *exec.ExitError
	if err != nil && limit.Err() == nil && !errors.As(err, &exit) {
		return o, err
	}
	o.out, o.failed = string(b), err != nil
	if cmd.ProcessState != nil {
		o.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	has := func(signs ...string) bool {
		return slices.ContainsFunc(signs, func(s string) bool { return strings.Contains(o.out, s) })
	}
	o.hung = limit.Err() != nil || has("panic: test timed out")
	o.broken = has("[build failed]", "[setup failed]", "build firn:")
	return o, nil
}

func (l layer) arguments(overlay string) []string {
	if overlay != "" {
		overlay = "-overlay=" + overlay
	}
	var args []string
	if l.command == nil {
		args = []string{"go", "test", "-count=1", "-vet=off", "-failfast", "-timeout=100s", "-run=^(" + strings.Join(l.tests, "|") + ")$"}
		if overlay != "" {
			args = append(args, overlay)
		}
		return append(args, l.pkg)
	}
	for _, a := range l.command {
		args = append(args, strings.ReplaceAll(a, "OVERLAY", overlay))
	}
	return args
}

// verdict is what an outcome means for a row whose failure is to say so; for a run
// without a change says is empty.
func (o *outcome) verdict(says string) (words string, good bool) {
	switch {
	case o.broken:
		return "DOES NOT BUILD", false
	case says == "" && !o.failed:
		return "passes", true
	case says == "":
		return "FAILS WITHOUT A CHANGE", false
	case !o.failed:
		return "SURVIVES", false
	case o.hung:
		return fmt.Sprintf("HANGS, and should say %q", says), false
	case strings.Contains(o.out, "panic: ") || !strings.Contains(leftAligned(o.out), says):
		return fmt.Sprintf("FAILS FOR ANOTHER REASON, and should say %q", says), false
	}
	return "caught: " + o.tells(says), true
}

// leftAligned is a text without its lines' indentation: go test indents what is
// said in several lines.
func leftAligned(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "\n")
}

// tells is the test that failed and the line that says so.
func (o *outcome) tells(says string) string {
	first, _, _ := strings.Cut(says, "\n")
	test, line := "", ""
	for l := range strings.Lines(o.out) {
		l = strings.TrimSpace(l)
		if name, ok := strings.CutPrefix(l, "--- FAIL: "); ok && line == "" {
			test, _, _ = strings.Cut(name, " (")
		}
		if line == "" && strings.Contains(l, first) {
			line = l
		}
	}
	return strings.TrimSpace(test + " " + line[:min(len(line), 140)])
}
