package segment

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"firn/segment/vfs"
)

// Kafka's checkpoint files are lines of text: a version, which is 0, the number
// of entries, and the entries.
const (
	recoveryPointFile = "recovery-point-offset-checkpoint"
	highWatermarkFile = "replication-offset-checkpoint"
	logStartFile      = "log-start-offset-checkpoint"
	epochFile         = "leader-epoch-checkpoint"
)

// TopicPartition names a partition.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// String is Kafka's name of the partition's directory.
func (tp TopicPartition) String() string {
	return tp.Topic + "-" + strconv.Itoa(int(tp.Partition))
}

// errCheckpoint: a checkpoint file that is none.
var errCheckpoint = errors.New("segment: checkpoint file is damaged")

// appendCheckpoint appends a file of n entries to dst, each made by entry.
func appendCheckpoint(dst []byte, n int, entry func(dst []byte, i int) []byte) []byte {
	dst = append(dst, "0\n"...)
	dst = strconv.AppendInt(dst, int64(n), 10)
	dst = append(dst, '\n')
	for i := range n {
		dst = append(entry(dst, i), '\n')
	}
	return dst
}

// parseCheckpoint calls entry with the fields of each entry.
func parseCheckpoint(b []byte, entry func(fields []string) error) error {
	lines := strings.Split(string(b), "\n")
	if len(lines) < 2 || lines[0] != "0" {
		return errCheckpoint
	}
	n, err := strconv.Atoi(lines[1])
	if err != nil || n < 0 || n > len(lines)-2 {
		return errCheckpoint
	}
	for i, line := range lines[2:] {
		if i >= n {
			if line != "" {
				return errCheckpoint
			}
			continue
		}
		if err := entry(strings.Split(line, " ")); err != nil {
			return err
		}
	}
	return nil
}

// appendOffsetCheckpoint appends an offset per partition, sorted.
func appendOffsetCheckpoint(dst []byte, offsets map[TopicPartition]int64) []byte {
	tps := slices.SortedFunc(maps.Keys(offsets), func(a, b TopicPartition) int {
		if c := strings.Compare(a.Topic, b.Topic); c != 0 {
			return c
		}
		return int(a.Partition) - int(b.Partition)
	})
	return appendCheckpoint(dst, len(tps), func(dst []byte, i int) []byte {
		dst = append(append(dst, tps[i].Topic...), ' ')
		dst = append(strconv.AppendInt(dst, int64(tps[i].Partition), 10), ' ')
		return strconv.AppendInt(dst, offsets[tps[i]], 10)
	})
}

func parseOffsetCheckpoint(b []byte) (map[TopicPartition]int64, error) {
	offsets := map[TopicPartition]int64{}
	err := parseCheckpoint(b, func(f []string) error {
		if len(f) != 3 {
			return errCheckpoint
		}
		p, err1 := strconv.ParseInt(f[1], 10, 32)
		o, err2 := strconv.ParseInt(f[2], 10, 64)
		if err1 != nil || err2 != nil || p < 0 || o < 0 || f[0] == "" {
			return errCheckpoint
		}
		offsets[TopicPartition{f[0], int32(p)}] = o
		return nil
	})
	return offsets, err
}

// appendEpochCheckpoint appends a leader-epoch-checkpoint.
func appendEpochCheckpoint(dst []byte, chain []EpochStart) []byte {
	return appendCheckpoint(dst, len(chain), func(dst []byte, i int) []byte {
		dst = append(strconv.AppendInt(dst, int64(chain[i].Epoch), 10), ' ')
		return strconv.AppendInt(dst, chain[i].Start, 10)
	})
}

func parseEpochCheckpoint(b []byte) ([]EpochStart, error) {
	var chain []EpochStart
	err := parseCheckpoint(b, func(f []string) error {
		if len(f) != 2 {
			return errCheckpoint
		}
		e, err1 := strconv.ParseInt(f[0], 10, 32)
		o, err2 := strconv.ParseInt(f[1], 10, 64)
		if err1 != nil || err2 != nil || e < 0 || o < 0 {
			return errCheckpoint
		}
		if n := len(chain); n > 0 && (int32(e) <= chain[n-1].Epoch || o < chain[n-1].Start) {
			return errCheckpoint
		}
		chain = append(chain, EpochStart{int32(e), o})
		return nil
	})
	return chain, err
}

// replaceFile makes name hold b, or what it held before: never part of either.
// Without durable it does so for a crash of the process only: after a power loss
// the file may be empty.
func replaceFile(fsys vfs.FS, name string, b []byte, durable bool) error {
	tmp := name + ".tmp"
	f, err := fsys.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	if err == nil && durable {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = fsys.Rename(tmp, name)
	}
	if err != nil {
		return errors.Join(err, removeIfThere(fsys, tmp))
	}
	if durable {
		return fsys.SyncDir(filepath.Dir(name))
	}
	return nil
}

// readFile reads a whole small file; nil without an error if there is none.
func readFile(fsys vfs.FS, name string, limit int64) ([]byte, error) {
	f, err := fsys.OpenFile(name, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > limit {
		return nil, fmt.Errorf("segment: %s is %d bytes, more than any such file", name, size)
	}
	b := make([]byte, size)
	if n, err := f.ReadAt(b, 0); n < len(b) {
		return nil, fmt.Errorf("segment: read %s: %w", name, err)
	}
	return b, nil
}

func removeIfThere(fsys vfs.FS, name string) error {
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
