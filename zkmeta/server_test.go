package zkmeta

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// talker is a server within the test's own process: answer is what it does with a
// connection. Nothing of it takes real time, so that it may be had in a bubble of
// synctest, which ends when the last answer has.
func talker(answer func(net.Conn)) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() { defer theirs.Close(); answer(theirs) }()
		return ours, nil
	}
}

func TestForeignServerIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const addr = "http.example:80"
		foreign := talker(func(c net.Conn) {
			go io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
			io.Copy(io.Discard, c)
		})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Open(t.Context(), Config{Connect: addr, Dial: foreign, SessionTimeout: time.Second, ConnectTimeout: 500 * time.Millisecond})
		runtime.ReadMemStats(&after)
		if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), errNotZK.Error()) || !strings.Contains(err.Error(), addr) {
			t.Errorf("Open = %v", err)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 {
			t.Errorf("%d bytes allocated for what a foreign server said", n)
		}
	})
}

// TestSilentServer: one that takes connections and says nothing, or not all of it,
// is left after a second.
func TestSilentServer(t *testing.T) {
	for name, says := range map[string]string{"Nothing": "", "HalfAnAnswer": "\x00\x00\x00\x25\x00\x00"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				left := make(chan time.Duration, 10)
				silent := talker(func(c net.Conn) {
					began := time.Now()
					go io.WriteString(c, says)
					io.Copy(io.Discard, c)
					left <- time.Since(began)
				})
				_, err := Open(t.Context(), Config{Connect: "silent.example:1", Dial: silent, SessionTimeout: 30 * time.Second, ConnectTimeout: 2500 * time.Millisecond})
				if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "timeout") {
					t.Errorf("Open = %v", err)
				}
				if d := <-left; d != time.Second {
					t.Errorf("left after %v", d)
				}
			})
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
		servers, chroot, err := parseConnect(in)
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
