package tiering

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// seenFile keeps the highest pointer sequence that this replica has seen, in the
// partition's directory, as a Kafka checkpoint: version, number of lines, line.
// A lower one later means a metadata store that was rolled back (Z1). Losing the
// file costs that check, nothing else, so nobody waits for a sync.
const seenFile = "archive-sequence-checkpoint"

func (l *Log) saveSeen(seq int64) {
	if l.cfg.FS == nil {
		return
	}
	name := filepath.Join(l.cfg.Dir, seenFile)
	err := func() error {
		f, err := l.cfg.FS.OpenFile(name+".tmp", os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o644)
		if err != nil {
			return err
		}
		_, err = f.WriteAt([]byte("0\n1\n"+strconv.FormatInt(seq, 10)+"\n"), 0)
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err == nil {
			err = l.cfg.FS.Rename(name+".tmp", name)
		}
		return err
	}()
	if err != nil {
		l.a.log.Warn("the archive's sequence can't be noted", "topic", l.part.Topic, "partition", l.part.Num, "err", err)
	}
}

func (l *Log) loadSeen() int64 {
	if l.cfg.FS == nil {
		return 0
	}
	f, err := l.cfg.FS.OpenFile(filepath.Join(l.cfg.Dir, seenFile), os.O_RDONLY, 0)
	if err != nil {
		return 0
	}
	defer f.Close()
	b := make([]byte, 64)
	n, _ := f.ReadAt(b, 0)
	lines := strings.Split(string(b[:n]), "\n")
	if len(lines) < 3 || lines[0] != "0" || lines[1] != "1" {
		return 0
	}
	seq, err := strconv.ParseInt(lines[2], 10, 64)
	if err != nil || seq < 0 {
		return 0
	}
	return seq
}
