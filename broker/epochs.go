package broker

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"firn/replication/meta"
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
	// Controller is the highest controller epoch seen (Z1).
	Controller int32 `json:"controller,omitempty"`
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

// epochKeeper keeps what the data directory remembers of epochs.
type epochKeeper struct {
	fs  vfs.FS
	dir string

	mu struct {
		sync.Mutex
		read bool
		now  brokerEpochs
	}
}

// load is what the data directory remembers.
func (k *epochKeeper) load() (brokerEpochs, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.loadLocked()
}

func (k *epochKeeper) loadLocked() (brokerEpochs, error) {
	if !k.mu.read {
		e, err := readEpochs(k.fs, k.dir)
		if err != nil {
			return e, err
		}
		k.mu.read, k.mu.now = true, e
	}
	return k.mu.now, nil
}

// change replaces what is remembered, durably.
func (k *epochKeeper) change(f func(*brokerEpochs)) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	e, err := k.loadLocked()
	if err != nil {
		return err
	}
	f(&e)
	if e == k.mu.now {
		return nil
	}
	if err := writeEpochs(k.fs, k.dir, e); err != nil {
		return err
	}
	k.mu.now = e
	return nil
}

// intend: a registration in this epoch is about to be tried.
func (k *epochKeeper) intend(epoch int64) error {
	return k.change(func(e *brokerEpochs) { e.Intended = epoch })
}

// registered: it has happened.
func (k *epochKeeper) registered(epoch int64) error {
	return k.change(func(e *brokerEpochs) { e.Last = epoch })
}

// controller: this controller epoch was seen.
func (k *epochKeeper) controller(epoch int32) error {
	return k.change(func(e *brokerEpochs) { e.Controller = max(e.Controller, epoch) })
}

// known says whether picture x, read in a new session, is of a metadata store
// that has all that this broker has seen of it. If not, it was rolled back: what
// it says of topics and leaders must not be obeyed, for newer records would be cut
// off or deleted by it (Z1, B9).
func (b *Broker) known(x *topicIndex) error {
	e, err := b.epochs.load()
	if err != nil {
		return err
	}
	if x.controllerEpoch < e.Controller {
		return fmt.Errorf("%w: the controller epoch is %d, this broker has seen %d. %s", meta.ErrRolledBack, x.controllerEpoch, e.Controller, rolledBackAdvice)
	}
	for _, r := range b.replicas.list() {
		t := x.byID[r.key.topic]
		if t == nil || int(r.key.index) >= len(t.states) || t.states[r.key.index].Version == meta.Missing {
			continue
		}
		if _, seen, _ := r.part.Leader(); t.states[r.key.index].LeaderEpoch < seen {
			return fmt.Errorf("%w: the leader epoch of %s is %d, this broker's log has %d. %s",
				meta.ErrRolledBack, r.name, t.states[r.key.index].LeaderEpoch, seen, rolledBackAdvice)
		}
	}
	return nil
}

const rolledBackAdvice = "An older copy of the metadata was put in place: this broker leads nothing, deletes nothing and ends. " +
	"Put the newest metadata back, or restore the cluster from its archive (firn archive restore)"
