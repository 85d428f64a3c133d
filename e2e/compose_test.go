package e2e

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
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

// composition is a compose file's services as plain processes, each with its
// exact command and environment. Only what a container would give differs: host
// names, volumes, files of the image and, so that tests can run beside each
// other, ports.
type composition struct {
	t     *testing.T
	file  composeFile
	bins  map[string]string // by entrypoint
	files map[string]string // of images: their path there, and where they are here
	ports map[string]map[string]int
	dirs  map[string]string // volumes
}

func newComposition(t *testing.T, path string) *composition {
	c := &composition{t: t, file: readCompose(t, path), bins: map[string]string{}, files: map[string]string{},
		ports: map[string]map[string]int{}, dirs: map[string]string{}}
	for v := range c.file.Volumes {
		c.dirs[v] = t.TempDir()
	}
	return c
}

// address is where a container's port is here.
func (c *composition) address(service, port string) string {
	if c.ports[service] == nil {
		c.ports[service] = map[string]int{}
	}
	if c.ports[service][port] == 0 {
		c.ports[service][port] = harness.FreePort(c.t)
	}
	return fmt.Sprintf("127.0.0.1:%d", c.ports[service][port])
}

// published is where a port that the file publishes on the host is here.
func (c *composition) published(port string) string {
	for name, s := range c.file.Services {
		for _, p := range s.Ports {
			if inside, ok := strings.CutPrefix(p, "127.0.0.1:"+port+":"); ok {
				return c.address(name, inside)
			}
		}
	}
	c.t.Fatalf("no service publishes port %s", port)
	return ""
}

var composeAddress = regexp.MustCompile(`(^|[/,=])([a-z0-9.-]*):([0-9]{4,5})\b`)

// here is text of a service with what the container would give replaced.
func (c *composition) here(service, text string) string {
	for _, v := range c.file.Services[service].Volumes {
		name, path, _ := strings.Cut(v, ":")
		if c.dirs[name] == "" {
			c.t.Fatalf("volume %s is not declared", name)
		}
		text = strings.ReplaceAll(text, path, c.dirs[name])
	}
	for from, to := range c.files {
		text = strings.ReplaceAll(text, from, to)
	}
	return composeAddress.ReplaceAllStringFunc(text, func(found string) string {
		m := composeAddress.FindStringSubmatch(found)
		switch host := m[2]; host {
		case "", "0.0.0.0":
			return m[1] + c.address(service, m[3])
		case "localhost":
			return m[1] + c.published(m[3])
		default:
			if _, ok := c.file.Services[host]; !ok {
				c.t.Fatalf("%s: %q names no service", service, text)
			}
			return m[1] + c.address(host, m[3])
		}
	})
}

// start runs a service and waits until it listens on port.
func (c *composition) start(name, port string) {
	t := c.t
	t.Helper()
	s, ok := c.file.Services[name]
	if !ok {
		t.Fatalf("no service %s", name)
	}
	bin := c.bins[entrypoint(t, s.Build.Dockerfile)]
	if bin == "" {
		bin = entrypoint(t, s.Build.Dockerfile)
	}
	cmd := exec.Command(bin)
	for _, a := range s.Command {
		cmd.Args = append(cmd.Args, c.here(name, a))
	}
	cmd.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
	for k, v := range s.Environment {
		cmd.Env = append(cmd.Env, k+"="+c.here(name, v))
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
	harness.Eventually(t, 30*time.Second, name+" listens", func() bool {
		conn, err := net.DialTimeout("tcp", c.address(name, port), time.Second)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	})
}

// services is how many there are, so that none goes unstarted.
func (c *composition) services(n int) {
	if len(c.file.Services) != n {
		c.t.Errorf("%d services, of which %d are tested", len(c.file.Services), n)
	}
}

func TestSingleCompose(t *testing.T) {
	c := newComposition(t, "deploy/single/compose.yaml")
	bin := harness.Binary(t)
	c.bins[entrypoint(t, "deploy/Dockerfile")] = bin
	c.bins[entrypoint(t, "deploy/minio.Dockerfile")] = minio.Binary(t)
	c.services(2)
	c.start("minio", "9000")
	c.start("firn", "9092")
	addr := c.published("9092")
	harness.Must(t, 30*time.Second, "one\ntwo\n", bin, "produce", "events", "-b", addr)
	if got := harness.Must(t, 30*time.Second, "", bin, "consume", "events", "-b", addr); got != "one\ntwo\n" {
		t.Errorf("read %q", got)
	}
	got := harness.Must(t, 30*time.Second, "", bin, "archive", "pending", "--admin", "http://"+c.published("9644"))
	if !strings.Contains(got, "events") {
		t.Errorf("archive pending: %s", got)
	}
}

// TestClusterCompose runs the cluster's file, produces at one broker what is read
// at another, and sees three replicas in sync.
func TestClusterCompose(t *testing.T) {
	c := newComposition(t, "deploy/cluster/compose.yaml")
	bin := harness.Binary(t)
	c.bins[entrypoint(t, "deploy/Dockerfile")] = bin
	c.bins[entrypoint(t, "deploy/minio.Dockerfile")] = minio.Binary(t)
	c.services(5)
	b, err := os.ReadFile(filepath.Join(harness.Root(), "deploy/cluster/zoo.cfg"))
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(c.address("zookeeper", "2181"), ":")
	zoo := strings.Replace(c.here("zookeeper", string(b)), "clientPort=2181", "clientPort="+port, 1)
	c.files["/etc/firn/zoo.cfg"] = filepath.Join(t.TempDir(), "zoo.cfg")
	if err := os.WriteFile(c.files["/etc/firn/zoo.cfg"], []byte(zoo), 0o644); err != nil {
		t.Fatal(err)
	}
	c.start("zookeeper", "2181")
	c.start("minio", "9000")
	for _, name := range []string{"firn-1", "firn-2", "firn-3"} {
		c.start(name, "9092")
	}
	for _, admin := range []string{"9644", "9744", "9844"} {
		harness.Eventually(t, 30*time.Second, "broker is ready", func() bool {
			answer, err := http.Get("http://" + c.published(admin) + "/readyz")
			if err != nil {
				return false
			}
			return answer.Body.Close() == nil && answer.StatusCode == http.StatusOK
		})
	}
	harness.Must(t, 30*time.Second, "", bin, "topic", "create", "events", "--partitions", "3", "-b", c.published("9092"))
	for _, port := range []string{"9092", "9192", "9292"} { // one hears of it after the other
		var got string
		harness.Eventually(t, 30*time.Second, "three partitions have three replicas in sync", func() bool {
			got = harness.Run(t, 30*time.Second, "", bin, "topic", "describe", "events", "-b", c.published(port)).Stdout
			return len(regexp.MustCompile(`\[\d \d \d\]`).FindAllString(got, -1)) == 3
		}, func() string { return "\n" + got })
	}
	harness.Must(t, 30*time.Second, "one\ntwo\n", bin, "produce", "events", "-b", c.published("9192"))
	got := harness.Must(t, 30*time.Second, "", bin, "consume", "events", "-b", c.published("9292"))
	if lines := strings.Fields(got); len(lines) != 2 {
		t.Errorf("read %q", got)
	}
}
