package tiering

import (
	"crypto/rand"
	"encoding/binary"
	"log/slog"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"firn/segment/vfs"
	"firn/tiering/cache"
	"firn/tiering/objstore"
)

// Config sets up an Archive. Store, Pointers and Identity must be set.
type Config struct {
	Store    objstore.Store
	Pointers Pointers
	// Identity is what CheckStart returned. The archive stops uploading and
	// deleting when firn.json says otherwise.
	Identity Identity

	// TakenOver, if not nil, is CheckStart's ErrTakenOver: the archive is read and
	// never written.
	TakenOver error

	// Log gets what an operator should know; nil discards it.
	Log *slog.Logger
	// Registerer gets the metrics; nil discards them.
	Registerer prometheus.Registerer
	// Now is the wall clock; nil is time.Now.
	Now func() time.Time
	// Random makes the ids in keys; nil is crypto/rand.
	Random func() uint64
	// Failpoint is called at the places that Failpoints lists, and what it
	// returns fails the call there; nil in production.
	Failpoint func(name string) error

	// Cache keeps what reads bring from the archive; it is the caller's to close,
	// after the Archive. nil: one of the Archive's own, in memory, of default size.
	Cache *cache.Cache
	// IndexBytes is what indexes of archived segments may take in memory
	// (remote.log.index.file.cache.total.size.bytes); 0 is 1 GiB. One takes 2 KiB
	// for each MiB of its segment at the most.
	IndexBytes int64

	// Workers is how many segments go up at the same time
	// (remote.log.manager.copier.thread.pool.size). 0 is half of the CPUs, at
	// least one: an upload is two requests, and the hot path has the rest.
	Workers int
	// UploadBytes is what uploads may hold in memory, all together; 0 is 64 MiB.
	// A segment's bytes stream from its file, so this is indexes and buffers.
	UploadBytes int64
	// CopyBytesPerSecond is remote.log.manager.copy.max.bytes.per.second; 0 is
	// no limit.
	CopyBytesPerSecond int64
	// DeleteGrace (archive.delete.grace.ms) is how long an object that is not
	// needed any more stays for readers that have found it. 0 is 10 minutes.
	DeleteGrace time.Duration
	// SweepEvery is how often a led partition is searched for orphans: a
	// listing of its objects. 0 is 12 hours, and once soon after an election.
	SweepEvery time.Duration
	// Tick is how often partitions are looked at for something to do, memory
	// only. 0 is a second.
	Tick time.Duration
	// Shortage tells how many bytes the disk is short of its reserve, 0 if it
	// isn't: archived local segments then go before local.retention.* asks for
	// it (FreeLocal). nil: never.
	Shortage func() int64
	// KeepEvery is how often retention is applied to each of them. 0 is 15
	// seconds.
	KeepEvery time.Duration
}

func (c Config) withDefaults() Config {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Registerer == nil {
		c.Registerer = prometheus.NewRegistry()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Random == nil {
		c.Random = randomID
	}
	if c.Workers == 0 {
		c.Workers = max(1, runtime.GOMAXPROCS(0)/2)
	}
	set(&c.UploadBytes, 64<<20)
	set(&c.DeleteGrace, 10*time.Minute)
	set(&c.SweepEvery, 12*time.Hour)
	set(&c.Tick, time.Second)
	set(&c.KeepEvery, 15*time.Second)
	return c
}

func set[T int64 | time.Duration](field *T, def T) {
	if *field == 0 {
		*field = def
	}
}

func randomID() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.BigEndian.Uint64(b[:])
}

// PartitionConfig goes with the opening of a partition.
type PartitionConfig struct {
	Partition Partition
	Policy    Policy
	// Topic says what topic.json shall say; it is asked before the first
	// manifest of a leader epoch. nil: the name and id alone.
	Topic func() TopicInfo
	// FS and Dir are where the partition's files are: the highest pointer
	// sequence seen is kept there, so that a metadata store that was rolled
	// back is noticed (Z1). FS nil keeps it in memory only.
	FS  vfs.FS
	Dir string
}
