package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// position is a place in a log as people give it: an offset, or a moment.
type position struct {
	set    bool
	offset int64     // if byTime is zero
	byTime time.Time // not zero: the first record from then on
	start  bool      // "start"
	end    bool      // "end"
}

// layouts of a date, from the most precise; a date without a zone is UTC.
var layouts = []string{
	"2006-01-02T15:04:05.999999999Z07:00", "2006-01-02T15:04:05.999999999", "2006-01-02T15:04Z07:00",
	"2006-01-02T15:04", "2006-01-02T15", "2006-01-02", "2006-01", "2006",
	"2006-01-02 15:04:05", "2006-01-02 15:04",
}

// parsePosition reads "start", "end", an offset, "@milliseconds", a date, or a
// time before now like "-48h" or "-7d". Numbers of four digits are offsets,
// unless they are followed by a month: years are written 2025-01.
func parsePosition(s string, now time.Time) (position, error) {
	switch s {
	case "":
		return position{}, nil
	case "start", "beginning", "earliest":
		return position{set: true, start: true}, nil
	case "end", "latest":
		return position{set: true, end: true}, nil
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && n >= 0 {
		return position{set: true, offset: n}, nil
	}
	if ms, ok := strings.CutPrefix(s, "@"); ok {
		if n, err := strconv.ParseInt(ms, 10, 64); err == nil {
			return position{set: true, byTime: time.UnixMilli(n)}, nil
		}
		s = ms
	}
	if ago, ok := strings.CutPrefix(s, "-"); ok {
		if d, err := parseAgo(ago); err == nil {
			return position{set: true, byTime: now.Add(-d)}, nil
		}
	}
	for _, l := range layouts {
		if t, err := time.ParseInLocation(l, s, time.UTC); err == nil {
			return position{set: true, byTime: t}, nil
		}
	}
	return position{}, fmt.Errorf("%q is no position: give an offset, a date like 2026-01-31T08:00 (UTC unless it names a zone), @milliseconds, a time ago like -48h, start or end", s)
}

// parseAgo is time.ParseDuration with days: 7d, 1d12h.
func parseAgo(s string) (time.Duration, error) {
	var days time.Duration
	if d, rest, ok := strings.Cut(s, "d"); ok {
		n, err := strconv.ParseInt(d, 10, 32)
		if err != nil {
			return 0, fmt.Errorf("%q is no number of days", d)
		}
		days, s = time.Duration(n)*24*time.Hour, rest
		if s == "" {
			return days, nil
		}
	}
	d, err := time.ParseDuration(s)
	return days + d, err
}

// outside says in words that a position given as an offset is none of a partition's.
func (p position) outside(partition int32, start, end int64) string {
	switch {
	case !p.set || !p.byTime.IsZero() || p.start || p.end:
	case p.offset < start:
		return fmt.Sprintf("partition %d begins at offset %d", partition, start)
	case p.offset > end:
		return fmt.Sprintf("partition %d ends at offset %d", partition, end)
	}
	return ""
}
