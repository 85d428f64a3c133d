package harness

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A Toolbox runs Kafka's tools one after the other in one virtual machine: what
// takes a second by itself takes a tenth of it here.
type Toolbox struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// NewToolbox starts the virtual machine, until the test ends.
func NewToolbox(t testing.TB) *Toolbox {
	t.Helper()
	cmd := exec.Command("java", append(jvm(), "-cp", compiled(t, "Tools"), "Tools")...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &Toolbox{t, cmd, in, bufio.NewReader(out)}
}

// Run runs a tool by class, a full name or one within org.apache.kafka.tools. A
// tool that ends with a code other than 0 is an error of its output.
func (b *Toolbox) Run(stdin, class string, args ...string) Output {
	b.t.Helper()
	class = toolClass(class)
	timer := time.AfterFunc(2*time.Minute, func() { _ = b.cmd.Process.Kill() })
	defer timer.Stop()
	request := fmt.Sprintf("%s\n%d\n", class, len(args))
	for _, a := range args {
		request += a + "\n"
	}
	if _, err := io.WriteString(b.in, fmt.Sprintf("%s%d\n%s", request, len(stdin), stdin)); err != nil {
		b.t.Fatalf("%s: %v", class, err)
	}
	var code, outLen, errLen int
	head, err := b.out.ReadString('\n')
	if _, scanErr := fmt.Sscanf(head, "%d %d %d\n", &code, &outLen, &errLen); err != nil || scanErr != nil {
		b.t.Fatalf("%s %s answers %q: %v, %v", class, strings.Join(args, " "), head, err, scanErr)
	}
	both := make([]byte, outLen+errLen)
	if _, err := io.ReadFull(b.out, both); err != nil {
		b.t.Fatalf("%s: %v", class, err)
	}
	o := Output{Stdout: string(both[:outLen]), Stderr: string(both[outLen:])}
	if code != 0 {
		o.Err = fmt.Errorf("%s %s: exit code %d", class, strings.Join(args, " "), code)
	}
	return o
}

// Must is Run that has to succeed.
func (b *Toolbox) Must(stdin, class string, args ...string) string {
	b.t.Helper()
	o := b.Run(stdin, class, args...)
	if o.Err != nil {
		b.t.Fatalf("%v\n%s%s", o.Err, o.Stdout, o.Stderr)
	}
	return o.Stdout
}

// toolClass is the full name of one of Kafka's tools.
func toolClass(name string) string {
	if strings.HasPrefix(name, "org.") || strings.HasPrefix(name, "kafka.") {
		return name
	}
	return "org.apache.kafka.tools." + name
}

// compiled compiles a source of e2e/java and returns the class path to run it.
func compiled(t testing.TB, class string) string {
	t.Helper()
	lib := KafkaLib(t)
	javac, err := exec.LookPath("javac")
	if err != nil {
		Missing(t, "javac")
	}
	dir := t.TempDir()
	Must(t, time.Minute, "", javac, "-cp", lib, "-d", dir, filepath.Join(Root(), "e2e", "java", class+".java"))
	return dir + ":" + lib
}
