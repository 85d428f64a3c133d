package zkmeta

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// said hands each line of a log to a function.
type said struct {
	slog.Handler
	line func(string)
}

func (s said) Enabled(context.Context, slog.Level) bool { return true }

func (s said) Handle(_ context.Context, r slog.Record) error {
	line := r.Message
	r.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
	s.line(line)
	return nil
}

// Who waits for ZooKeeper says so when the first server refuses, not when it gives up.
func TestWaitingForZooKeeperIsToldAtOnce(t *testing.T) {
	for name, dial := range map[string]func(context.Context, string, string) (net.Conn, error){
		"refused": nil,
		"silent": func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go func() {
				for b := make([]byte, 64); ; {
					if _, err := theirs.Read(b); err != nil {
						return
					}
				}
			}()
			return ours, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			told := make(chan string, 100)
			_, err := Open(ctx, Config{Connect: "127.0.0.1:1/x", SessionTimeout: time.Hour, Dial: dial, Log: slog.New(said{line: func(l string) {
				if strings.HasPrefix(l, "waiting for ZooKeeper") {
					told <- l
					cancel()
				}
			}})})
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("Open = %v: not told", err)
			}
			if l := <-told; !strings.Contains(l, "servers=127.0.0.1:1") || !strings.Contains(l, "err=") {
				t.Errorf("told %q", l)
			}
		})
	}
}

// Open waits for ConnectTimeout, however often a session's time passes, and says so
// all along.
func TestOpenWaitsForConnectTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refuses := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("nobody there") }
		var mu sync.Mutex
		var told []time.Time
		began := time.Now()
		_, err := Open(t.Context(), Config{Connect: "a:1,b:2/x", SessionTimeout: 4 * time.Second, ConnectTimeout: time.Minute, Dial: refuses, Log: slog.New(said{line: func(l string) {
			if strings.HasPrefix(l, "waiting for ZooKeeper servers=a:1,b:2 left=") {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, time.Now())
			}
		}})})
		// The library may take a second to end its client.
		if took := time.Since(began).Truncate(2 * time.Second); !errors.Is(err, ErrUnreachable) || took != time.Minute || !strings.Contains(err.Error(), "within 1m0s: nobody there") {
			t.Errorf("after %v: %v", took, err)
		}
		mu.Lock()
		defer mu.Unlock()
		if n := len(told); n < 9 || n > 12 || !told[0].Equal(began) || time.Since(told[n-1]) > 8*time.Second {
			t.Errorf("told at %v, from %v on", told, began)
		}
	})
}

func TestWaitingForZooKeeperIsToldRarely(t *testing.T) {
	var lines []string
	s := &Store{servers: []string{"a:1"}, now: new(session), cfg: Config{Log: slog.New(said{line: func(l string) { lines = append(lines, l) }})}}
	for range 3 {
		s.waits(errNotZK)
	}
	if len(lines) != 1 {
		t.Fatalf("told %q", lines)
	}
	s.told = s.told.Add(-tellAgain)
	s.waits(errNotZK)
	s.waits(nil)
	s.waits(nil)
	s.waits(errNotZK)
	if want := 4; len(lines) != want || lines[2] != "ZooKeeper answers again" {
		t.Errorf("told %q", lines)
	}
}
