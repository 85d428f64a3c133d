package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"sync/atomic"
	"syscall"
	"time"

	"firn/segment/vfs"
)

// machine is what a broker runs on: a disk that outlives the process, a clock of
// its own, and the ways to the others.
type machine struct {
	w    *world
	id   int32
	disk *vfs.Mem
	// boot counts the boots: a power loss ends one, a crash of the process doesn't.
	boot   int
	starts int
	proc   *process // nil while none runs
	// paused: the process stands still (SIGSTOP); cutOff: it doesn't reach
	// ZooKeeper; cut: the machines that its packets don't reach.
	paused bool
	cutOff bool
	cut    map[int32]bool
	skew   time.Duration
	// segmentBytes differs between machines, so that borders of segments do (D28).
	segmentBytes int64
	// keep is how much of what was not synced survives the next loss of power in
	// the midst of things; full: the disk has no space.
	keep int
	full bool
	// damaged: it may have lost something since it was last in every ISR.
	damaged bool
}

var errCrashed = errors.New("sim: the process is dead")

const dataDir = "/data"

func (m *machine) String() string { return fmt.Sprintf("b%d", m.id) }

// hook is before each call that process p makes of its disk.
func (m *machine) hook(p *process) func(vfs.Op) error {
	return func(op vfs.Op) error {
		if !op.Changes() {
			return nil
		}
		if m.w.traceDisk {
			p.log.note("disk %06d: %v", p.changes.Add(1), op)
		}
		if n := p.crashIn.Load(); n > 0 && p.crashIn.Add(-1) == 0 {
			// The power goes before this very change. What the disk kept is
			// settled here; who follows finds a dead process.
			p.die()
			p.wreck = m.disk.CrashClone(vfs.CrashOptions{Keep: m.keep, Rand: rand.New(rand.NewPCG(uint64(m.starts), uint64(m.id)))})
			return errCrashed
		}
		if op.Kind == vfs.OpSync && path.Ext(op.Name) == ".log" && p.ioFault.CompareAndSwap(true, false) {
			return &vfs.Fault{Err: syscall.EIO}
		}
		return nil
	}
}

// lose takes the power away: keep per cent of what was not synced survive.
func (m *machine) lose(keep int, r *rand.Rand) {
	if m.proc != nil && m.proc.wreck != nil {
		m.disk = m.proc.wreck
	} else {
		m.disk = m.disk.CrashClone(vfs.CrashOptions{Keep: keep, Rand: r})
	}
	m.boot++
}

// wipe gives the machine an empty disk.
func (m *machine) wipe() {
	m.disk = vfs.NewMem()
	m.boot++
}

// now is the wall clock of the machine.
func (m *machine) now() time.Time { return time.Now().Add(m.skew) }

// brokerEpochs is what the data directory remembers of registrations (R6), as
// the broker has it.
type brokerEpochs struct{ Last, Intended int64 }

const epochsFile = dataDir + "/broker-epoch.json"

func readEpochs(fsys vfs.FS) (brokerEpochs, error) {
	var e brokerEpochs
	f, err := fsys.OpenFile(epochsFile, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return e, nil
	}
	if err != nil {
		return e, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return e, err
	}
	b := make([]byte, size)
	if _, err := f.ReadAt(b, 0); err != nil {
		return e, err
	}
	return e, json.Unmarshal(b, &e)
}

func writeEpochs(fsys vfs.FS, e brokerEpochs) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	f, err := fsys.OpenFile(epochsFile+".tmp", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := fsys.Rename(epochsFile+".tmp", epochsFile); err != nil {
		return err
	}
	return fsys.SyncDir(dataDir)
}

// once is an atomic switch that is thrown once.
type once struct{ atomic.Bool }
