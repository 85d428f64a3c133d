package main

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"firn/e2e/chaos/workload"
	"firn/e2e/checker"
)

// window is a fault as it happened.
type window struct {
	From, To time.Duration
	Promised bool
	Name     string
	Hit      string

	acked int
}

func (w *window) String() string {
	return fmt.Sprintf("%d %d %t %s %s", w.From.Milliseconds(), w.To.Milliseconds(), w.Promised, w.Name, w.Hit)
}

// appendWindow adds a window to the file.
func appendWindow(path string, w *window) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(f, w); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

func readWindows(path string) ([]*window, error) {
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var ws []*window
	for sc := bufio.NewScanner(f); sc.Scan(); {
		var from, to int64
		w := &window{}
		if _, err := fmt.Sscanf(sc.Text(), "%d %d %t %s", &from, &to, &w.Promised, &w.Name); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", path, sc.Text(), err)
		}
		if f := strings.SplitN(sc.Text(), " ", 5); len(f) == 5 {
			w.Hit = f[4]
		}
		w.From, w.To = time.Duration(from)*time.Millisecond, time.Duration(to)*time.Millisecond
		ws = append(ws, w)
	}
	return ws, nil
}

// availability is how many writes were acknowledged, outside the windows and in
// each of them.
type availability struct {
	outside, outsideAcked int
	windows               []*window
}

// measure reads every history for its writes. A write belongs to the moment at
// which it was sent, an acknowledgement to that at which it came.
func measure(h *workload.Histories, ws []*window) (availability, error) {
	a := availability{windows: ws}
	for p := range h.Partitions {
		f, err := os.Open(h.Path(p))
		if err != nil {
			return a, err
		}
		err = checker.EachWrite(f, func(from, to time.Duration, acked bool) {
			if inside(ws, from) == nil {
				a.outside++
				if acked {
					a.outsideAcked++
				}
			}
			if w := inside(ws, to); w != nil && acked {
				w.acked++
			}
		})
		f.Close()
		if err != nil {
			return a, err
		}
	}
	return a, nil
}

// inside finds the window that t lies in. Windows are in order and don't overlap.
func inside(ws []*window, t time.Duration) *window {
	i, ok := slices.BinarySearchFunc(ws, t, func(w *window, t time.Duration) int {
		switch {
		case t < w.From:
			return 1
		case t > w.To:
			return -1
		}
		return 0
	})
	if !ok {
		return nil
	}
	return ws[i]
}
