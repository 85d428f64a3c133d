package harness

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Root is the repository's root.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
}

// Cache is where e2e/setup.sh puts what it fetches and builds.
func Cache() string {
	if c := os.Getenv("FIRN_CACHE"); c != "" {
		return c
	}
	return filepath.Join(Root(), ".cache")
}

// Missing skips the test for want of a tool, or fails it under FIRN_REQUIRE=all.
func Missing(t testing.TB, what string) {
	t.Helper()
	msg := what + " is missing: run e2e/setup.sh"
	if os.Getenv("FIRN_REQUIRE") == "all" {
		t.Fatal(msg)
	}
	t.Skip(msg)
}

// Output is what a finished command printed.
type Output struct {
	Stdout, Stderr string
	Err            error
}

// Run runs a command to its end, with stdin as its input; it is killed when limit and
// patience are over.
func Run(t testing.TB, limit time.Duration, stdin string, name string, args ...string) Output {
	t.Helper()
	return run(t, limit, nil, stdin, name, args...)
}

// RunEnv is Run without input, under more environment variables.
func RunEnv(t testing.TB, limit time.Duration, env []string, name string, args ...string) Output {
	t.Helper()
	return run(t, limit, env, "", name, args...)
}

func run(t testing.TB, limit time.Duration, env []string, stdin, name string, args ...string) Output {
	t.Helper()
	limit = max(limit, patience)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errb bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errb
	cmd.WaitDelay = 30 * time.Second // for the rest of its output
	err := cmd.Run()
	if ctx.Err() != nil {
		err = fmt.Errorf("%s: not done after %v: %w", name, limit, err)
	}
	return Output{out.String(), errb.String(), err}
}

// Must is Run that has to succeed.
func Must(t testing.TB, limit time.Duration, stdin string, name string, args ...string) string {
	t.Helper()
	o := Run(t, limit, stdin, name, args...)
	if o.Err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), o.Err, o.Stdout, o.Stderr)
	}
	return o.Stdout
}

// Kcat is the path of kcat.
func Kcat(t testing.TB) string {
	t.Helper()
	p, err := exec.LookPath("kcat")
	if err != nil {
		Missing(t, "kcat")
	}
	return p
}

// KafkaVersion is the release whose tools and client the tests use.
const KafkaVersion = "4.3.1"

// KafkaLib is the class path of Apache Kafka's jars.
func KafkaLib(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(Cache(), "kafka-"+KafkaVersion)
	if _, err := os.Stat(filepath.Join(dir, ".complete")); err != nil {
		Missing(t, "Apache Kafka "+KafkaVersion)
	}
	if _, err := exec.LookPath("java"); err != nil {
		Missing(t, "java")
	}
	return filepath.Join(dir, "lib", "*")
}

// jvm are flags for short-lived tools on a small machine.
func jvm() []string {
	return []string{"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"}
}

// KafkaTool runs one of Kafka's tools by class, a full name or one within
// org.apache.kafka.tools, in a virtual machine of its own.
func KafkaTool(t testing.TB, stdin, class string, args ...string) Output {
	t.Helper()
	return Run(t, 2*time.Minute, stdin, "java", append(append(jvm(), "-cp", KafkaLib(t), toolClass(class)), args...)...)
}

// JavaClass compiles a source of e2e/java and runs it.
func JavaClass(t testing.TB, limit time.Duration, class string, args ...string) Output {
	t.Helper()
	return Run(t, limit, "", "java", append(append(jvm(), "-cp", compiled(t, class), class), args...)...)
}
