package zkmeta

import (
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"
)

// server is something that takes connections; answer is what it does with one.
func server(t *testing.T, answer func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer conn.Close(); answer(conn) }()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}

func TestForeignServerIsNamed(t *testing.T) {
	addr := server(t, func(c net.Conn) {
		io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
		io.Copy(io.Discard, c)
	})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := Open(t.Context(), Config{Connect: addr, SessionTimeout: time.Second, ConnectTimeout: 500 * time.Millisecond})
	runtime.ReadMemStats(&after)
	if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), errNotZK.Error()) || !strings.Contains(err.Error(), addr) {
		t.Errorf("Open = %v", err)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 {
		t.Errorf("%d bytes allocated for what a foreign server said", n)
	}
}

// TestSilentServer: one that takes connections and says nothing, or not all of it,
// is left after a second.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	for name, says := range map[string]string{"Nothing": "", "HalfAnAnswer": "\x00\x00\x00\x25\x00\x00"} {
		t.Run(name, func(t *testing.T) {
			left := make(chan time.Duration, 10)
			addr := server(t, func(c net.Conn) {
				began := time.Now()
				io.WriteString(c, says)
				io.Copy(io.Discard, c)
				left <- time.Since(began)
			})
			_, err := Open(t.Context(), Config{Connect: addr, SessionTimeout: 30 * time.Second, ConnectTimeout: 2500 * time.Millisecond})
			if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "timeout") {
				t.Errorf("Open = %v", err)
			}
			if d := <-left; d > 1500*time.Millisecond {
				t.Errorf("left after %v", d)
			}
		})
	}
}

func TestHostsPauseAfterAllHaveRefused(t *testing.T) {
	h := &hosts{}
	h.Init([]string{"a", "b", "c"})
	var got []string
	for i := range 9 {
		if i == 5 {
			h.Connected()
		}
		s, pause := h.Next()
		if pause {
			s = "pause " + s
		}
		got = append(got, s)
	}
	want := "a b c pause a b c a b pause c"
	if s := strings.Join(got, " "); s != want {
		t.Errorf("tried %q, want %q", s, want)
	}
}

func TestParseConnect(t *testing.T) {
	for in, want := range map[string]string{
		"localhost:2181":          "localhost:2181",
		"localhost":               "localhost:2181",
		" a:1 , b:2,c/kafka/one ": "a:1 b:2 c:2181 /kafka/one",
		"a:1/":                    "a:1",
		"[::1]:2181/x":            "[::1]:2181 /x",
		"[::1]":                   "[::1]:2181",
		"a:1,,b:2":                "a:1 b:2",
		"":                        "error",
		"/x":                      "error",
		"a:1/x,b:2/x":             "error",
		"a:1//x":                  "error",
		"a:1/../x":                "error",
		"a:1/zookeeper":           "error",
		"a:0":                     "error",
		"a:99999":                 "error",
		"::1":                     "error",
		"a:b:c":                   "error",
	} {
		servers, chroot, err := ParseConnect(in)
		got := strings.TrimSpace(strings.Join(servers, " ") + " " + chroot)
		if err != nil {
			got = "error"
			if !errors.Is(err, ErrConfig) {
				t.Errorf("%q: %v", in, err)
			}
		}
		if got != want {
			t.Errorf("%q: %q, %v, want %q", in, got, err, want)
		}
	}
}
