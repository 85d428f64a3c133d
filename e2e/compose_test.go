package e2e

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"firn/e2e/harness"
	"firn/e2e/minio"
)

// composeFile is what our compose files use of the format; anything else is an
// error, so that nothing in them goes untested.
type composeFile struct {
	Services map[string]composeService `yaml:"services"`
	Volumes  map[string]struct{}       `yaml:"volumes"`
}

type composeService struct {
	Build struct {
		Context    string `yaml:"context"`
		Dockerfile string `yaml:"dockerfile"`
	} `yaml:"build"`
	Command     []string          `yaml:"command"`
	Environment map[string]string `yaml:"environment"`
	Ports       []string          `yaml:"ports"`
	DependsOn   []string          `yaml:"depends_on"`
	Restart     string            `yaml:"restart"`
	Volumes     []string          `yaml:"volumes"`
}

func readCompose(t *testing.T, path string) composeFile {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(harness.Root(), path))
	if err != nil {
		t.Fatal(err)
	}
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	var c composeFile
	if err := d.Decode(&c); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return c
}

// entrypoint is the last ENTRYPOINT of a Dockerfile, whose files must exist in it.
func entrypoint(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(harness.Root(), path))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^ENTRYPOINT \["([^"]+)"\]$`).FindStringSubmatch(string(b))
	if m == nil {
		t.Fatalf("%s has no exec-form ENTRYPOINT", path)
	}
	return m[1]
}

// TestSingleCompose runs each service of the compose file with its exact command
// and environment as a plain process. Only what a container would give differs:
// host names, volumes and, so that tests can run beside each other, ports.
func TestSingleCompose(t *testing.T) {
	c := readCompose(t, "deploy/single/compose.yaml")
	kafka, admin, store := harness.FreePort(t), harness.FreePort(t), harness.FreePort(t)
	dirs := map[string]string{}
	for v := range c.Volumes {
		dirs[v] = t.TempDir()
	}
	bins := map[string]string{
		entrypoint(t, "deploy/Dockerfile"):       harness.Binary(t),
		entrypoint(t, "deploy/minio.Dockerfile"): minio.Binary(t),
	}
	inside := func(s composeService, text string) string {
		for _, v := range s.Volumes {
			name, path, _ := strings.Cut(v, ":")
			if dirs[name] == "" {
				t.Fatalf("volume %s is not declared", name)
			}
			text = strings.ReplaceAll(text, path, dirs[name])
		}
		return strings.NewReplacer("//minio:9000", fmt.Sprintf("//127.0.0.1:%d", store), ":9000", fmt.Sprintf("127.0.0.1:%d", store),
			"0.0.0.0:9092", fmt.Sprintf("127.0.0.1:%d", kafka), "localhost:9092", fmt.Sprintf("127.0.0.1:%d", kafka),
			"0.0.0.0:9644", fmt.Sprintf("127.0.0.1:%d", admin)).Replace(text)
	}
	for _, name := range []string{"minio", "firn"} {
		s, ok := c.Services[name]
		if !ok {
			t.Fatalf("no service %s", name)
		}
		cmd := exec.Command(bins[entrypoint(t, s.Build.Dockerfile)])
		for _, a := range s.Command {
			cmd.Args = append(cmd.Args, inside(s, a))
		}
		cmd.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
		for k, v := range s.Environment {
			cmd.Env = append(cmd.Env, k+"="+inside(s, v))
		}
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			_ = cmd.Wait()
			if t.Failed() {
				t.Logf("%s:\n%s", name, out.String())
			}
		})
		port := store
		if name == "firn" {
			port = kafka
		}
		harness.Eventually(t, 30*time.Second, name+" listens", func() bool {
			conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), time.Second)
			if err != nil {
				return false
			}
			return conn.Close() == nil
		})
	}
	if len(c.Services) != 2 {
		t.Errorf("%d services, of which 2 are tested", len(c.Services))
	}
	addr := fmt.Sprintf("127.0.0.1:%d", kafka)
	bin := harness.Binary(t)
	harness.Must(t, 30*time.Second, "one\ntwo\n", bin, "produce", "events", "-b", addr)
	if got := harness.Must(t, 30*time.Second, "", bin, "consume", "events", "-b", addr); got != "one\ntwo\n" {
		t.Errorf("read %q", got)
	}
	got := harness.Must(t, 30*time.Second, "", bin, "archive", "pending", "--admin", fmt.Sprintf("http://127.0.0.1:%d", admin))
	if !strings.Contains(got, "events") {
		t.Errorf("archive pending: %s", got)
	}
}
