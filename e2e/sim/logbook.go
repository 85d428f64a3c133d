package main

import (
	"context"
	"log/slog"
	"strings"
)

// logBook is where a process notes what it does: the trace. It is the handler of
// the production code's logs, too.
type logBook struct {
	p    *process
	with string
}

// note adds to the trace. What a dead process still says depends on who came first.
func (l *logBook) note(format string, args ...any) {
	if !l.p.dead() {
		l.p.w.s.trace.note(l.p.name, format, args...)
	}
}

var _ slog.Handler = (*logBook)(nil)

func (l *logBook) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (l *logBook) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteString(r.Message)
	b.WriteString(l.with)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != "took" {
			b.WriteString(" " + a.String())
		}
		return true
	})
	l.note("%s", withoutID(b.String()))
	return nil
}

func (l *logBook) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := l.with
	for _, a := range attrs {
		with += " " + a.String()
	}
	return &logBook{l.p, with}
}

func (l *logBook) WithGroup(string) slog.Handler { return l }

// logger is a logger into the trace.
func (l *logBook) logger() *slog.Logger { return slog.New(l) }
