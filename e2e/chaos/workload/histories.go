package workload

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"firn/e2e/checker"
)

// Clock is the one clock of a run, which goes on where an earlier process of the
// same run stopped.
type Clock struct {
	Begun time.Time
	Spent time.Duration
}

// Now is the time since the run began.
func (c Clock) Now() time.Duration { return c.Spent + time.Since(c.Begun) }

// Histories are a topic's, one file a partition.
type Histories struct {
	Topic      string
	Partitions int32
	dir        string
	writers    []*checker.Writer
}

// OpenHistories opens them in dir, where they go on if they exist.
func OpenHistories(dir, topic string, partitions int32) (*Histories, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	h := &Histories{Topic: topic, Partitions: partitions, dir: dir}
	for p := range partitions {
		f, err := os.OpenFile(h.Path(p), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return nil, errors.Join(err, h.Close())
		}
		h.writers = append(h.writers, checker.NewWriter(f))
	}
	return h, nil
}

// Path is the file of a partition.
func (h *Histories) Path(p int32) string {
	return filepath.Join(h.dir, fmt.Sprintf("%s-%d.txt", h.Topic, p))
}

// Of is the history of a partition.
func (h *Histories) Of(p int32) *checker.Writer { return h.writers[p] }

// Close writes out what is buffered.
func (h *Histories) Close() error {
	var err error
	for _, w := range h.writers {
		err = errors.Join(err, w.Close())
	}
	h.writers = nil
	return err
}
