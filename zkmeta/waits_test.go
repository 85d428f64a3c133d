package zkmeta

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
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
