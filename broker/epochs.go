package broker

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"firn/segment/vfs"
)

// brokerEpochs is what the data directory remembers of this broker's
// registrations (R6): of the last one that is known to have happened, and of the
// last one tried. A registration that goes on where these agree with the metadata
// store knows that no other process has had the id since.
type brokerEpochs struct {
	Version  int   `json:"version"`
	Last     int64 `json:"last"`
	Intended int64 `json:"intended"`
}

const (
	epochsFile    = "broker-epoch.json"
	epochsMaxSize = 4096
)

// readEpochs reads what dir remembers; nothing, in a new one.
func readEpochs(fsys vfs.FS, dir string) (brokerEpochs, error) {
	e := brokerEpochs{Version: 1}
	f, err := fsys.OpenFile(filepath.Join(dir, epochsFile), os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return e, nil
	}
	if err != nil {
		return e, fmt.Errorf("broker: reading the broker epoch: %w", err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil || size > epochsMaxSize {
		return e, fmt.Errorf("broker: reading the broker epoch: %d bytes, %w", size, errors.Join(err, errEpochs))
	}
	b := make([]byte, size)
	if _, err := f.ReadAt(b, 0); err != nil {
		return e, fmt.Errorf("broker: reading the broker epoch: %w", err)
	}
	if err := json.Unmarshal(b, &e); err != nil || e.Version != 1 {
		return e, fmt.Errorf("broker: %s: %w", f.Name(), errEpochs)
	}
	return e, nil
}

var errEpochs = errors.New("broker: damaged broker epoch file")

// writeEpochs replaces what dir remembers, durably.
func writeEpochs(fsys vfs.FS, dir string, e brokerEpochs) error {
	b, err := json.Marshal(e)
	if err != nil {
		panic(err) // a struct of numbers
	}
	name := filepath.Join(dir, epochsFile)
	if err := writeFile(fsys, name+".tmp", b); err != nil {
		return fmt.Errorf("broker: recording the broker epoch: %w", err)
	}
	if err := fsys.Rename(name+".tmp", name); err != nil {
		return fmt.Errorf("broker: recording the broker epoch: %w", err)
	}
	return fsys.SyncDir(dir)
}

// writeFile writes a file whole and durable, but for its name.
func writeFile(fsys vfs.FS, name string, b []byte) error {
	f, err := fsys.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
