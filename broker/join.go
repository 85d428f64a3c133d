package broker

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"firn/replication"
	"firn/replication/meta"
	"firn/segment"
)

// join makes this broker part of its cluster. The order is what R6 and S7 ask
// for: it registers only when all its logs are recovered, and it leads nothing
// before the election that its registration brings about.
//
//	log directory ─▶ whose is it? ─▶ metadata ─▶ archive ─▶ logs ─▶ strays ─▶ moved away ─▶ registration
func (b *Broker) join(ctx context.Context) error {
	if err := meta.Init(ctx, b.cfg.Meta); err != nil {
		return err
	}
	dir, err := segment.OpenDir(segment.DirConfig{
		Path:         b.cfg.LogDir,
		FS:           b.cfg.FS,
		Log:          b.log,
		Registerer:   b.cfg.Metrics,
		Now:          b.now,
		Failpoint:    b.cfg.Failpoint,
		MinFreeBytes: b.cfg.Settings.DiskReserve(),
	})
	if err != nil {
		return err
	}
	b.replicas.dir = dir
	fresh, err := b.identify(ctx, dir)
	if err != nil {
		return err
	}
	if err := b.image.read(ctx); err != nil {
		return err
	}
	if err := b.openArchive(ctx, fresh); err != nil {
		return err
	}
	if err := b.replicas.lost.find(dir); err != nil {
		return err
	}
	began := time.Now()
	if err := b.image.show(ctx); err != nil {
		return err
	}
	n := len(b.replicas.list())
	b.log.Info("logs are open", "partitions", n, "seconds", time.Since(began).Seconds())
	if err := b.strays(ctx); err != nil {
		return err
	}
	if err := b.known(b.topics.Load()); err != nil {
		return err
	}
	if err := b.deleteMoved(); err != nil {
		return err
	}
	if err := b.register(ctx, true); err != nil {
		return err
	}
	return b.unlist(ctx)
}

// identify makes sure that the log directory and the metadata store belong
// together, and changes nothing if they don't: a store that knows no topics
// would have every log here look like a leftover (B10). fresh: it was new.
func (b *Broker) identify(ctx context.Context, dir *segment.Dir) (fresh bool, err error) {
	m := dir.Meta()
	id, err := meta.LoadClusterID(ctx, b.cfg.Meta)
	fresh = errors.Is(err, meta.ErrNotFound)
	switch {
	case err != nil && !fresh:
		return false, err
	case fresh && m.ClusterID != "":
		return fresh, fmt.Errorf("broker: %s holds logs of cluster %s, but the metadata store is new: it has no topics, and these logs would belong to nobody. "+
			"Start with the metadata store of that cluster (zookeeper.connect with the same servers and chroot, or --data of the same broker), or name an empty log directory. "+
			"A broker that was alone moves into an empty ZooKeeper with firn cluster adopt", b.cfg.LogDir, m.ClusterID)
	case !fresh && m.ClusterID != "" && m.ClusterID != id:
		return fresh, fmt.Errorf("broker: %s holds logs of cluster %s, but the metadata store is that of cluster %s. "+
			"Start with the metadata store of the same cluster, or name another log directory", b.cfg.LogDir, m.ClusterID, id)
	case m.BrokerID >= 0 && m.BrokerID != b.cfg.NodeID:
		return fresh, fmt.Errorf("broker: %s holds the logs of broker %d, but this is broker %d. Set node.id=%d, or name another log directory", b.cfg.LogDir, m.BrokerID, b.cfg.NodeID, m.BrokerID)
	}
	if fresh {
		if id, err = meta.MakeClusterID(ctx, b.cfg.Meta, newID()); err != nil {
			return fresh, err
		}
		b.log.Info("new cluster", "cluster", id)
	}
	if err := meta.CheckAdopted(ctx, b.cfg.Meta); err != nil {
		return fresh, err
	}
	b.clusterID = id
	if m.ClusterID == id && m.BrokerID == b.cfg.NodeID {
		return fresh, nil
	}
	m.ClusterID, m.BrokerID = id, b.cfg.NodeID
	return fresh, dir.SetMeta(m)
}

// newID is a random id in Kafka's form of a UUID.
func newID() string {
	var id [16]byte
	rand.Read(id[:])
	id[0] &= 0x7f // no leading '-', which looks like an option
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// strays looks for logs that no topic of this cluster owns. One whose topic has
// left a tombstone was being deleted when the broker stopped, and is deleted
// now. Any other is kept: nobody can prove that it isn't needed (B10).
func (b *Broker) strays(ctx context.Context) error {
	found, err := b.replicas.dir.Partitions()
	if err != nil {
		return err
	}
	var unknown []segment.Found
	x := b.topics.Load()
	for _, f := range found {
		if t := x.byName[f.Topic]; t != nil && t.ID == f.TopicID && t.has(f.Partition) {
			continue
		}
		unknown = append(unknown, f)
	}
	if len(unknown) == 0 {
		return nil
	}
	purges, err := meta.LoadPurges(ctx, b.cfg.Meta)
	if err != nil {
		return err
	}
	deleted := map[meta.TopicID]bool{}
	for _, p := range purges {
		deleted[p.ID] = true
	}
	var doomed []segment.TopicPartition
	for _, f := range unknown {
		if !deleted[f.TopicID] {
			b.log.Warn("stray log: no topic owns it; it is kept and not served", "topic", f.Topic, "partition", f.Partition, "topic_id", meta.TopicID(f.TopicID).String())
			continue
		}
		b.log.Info("log of a deleted topic", "topic", f.Topic, "partition", f.Partition)
		doomed = append(doomed, f.TopicPartition)
	}
	if len(doomed) > 0 {
		b.replicas.dir.Delete(doomed...)
	}
	return nil
}

// register makes this broker known, in a new broker epoch, and takes its lease.
// started: it has just started, so that the mark of its last stop counts.
func (b *Broker) register(ctx context.Context, started bool) error {
	epochs, err := b.epochs.load()
	if err != nil {
		return err
	}
	in := meta.Incarnation{
		Broker: meta.Broker{
			ID:        b.cfg.NodeID,
			Rack:      b.cfg.Settings.String("broker.rack"),
			Endpoints: b.Endpoints(),
			StorageID: b.replicas.dir.Meta().DirectoryID,
		},
		BootID:        bootID(),
		LastEpoch:     epochs.Last,
		IntendedEpoch: epochs.Intended,
		Lost:          b.replicas.givenUp(b.topics.Load()),
		Intend:        b.epochs.intend,
	}
	if mark, clean := b.replicas.dir.Clean(); clean && started {
		in.CleanNonce = mark.Nonce
	}
	// Before the registration: a session that ends meanwhile is not missed.
	_, lost := b.cfg.Meta.Session()
	r, err := b.admit(ctx, in)
	if err != nil {
		return err
	}
	if err := b.epochs.registered(r.Epoch); err != nil {
		return err
	}
	b.member.Store(&membership{Registration: r, lost: lost})
	b.hasJoined.Store(true)
	b.log.Info("registered", "broker", r.ID, "broker_epoch", r.Epoch)
	if err := b.renew(ctx, r, replication.LeaseTimes(b.sessionTimeout())); err != nil {
		b.log.Warn("no lease yet", "err", err)
	}
	return nil
}

// admit registers. Where another storage is registered under our id, that may be
// a broker that has just died: it is waited for as long as its session can last (B1).
func (b *Broker) admit(ctx context.Context, in meta.Incarnation) (meta.Registration, error) {
	wait := b.sessionTimeout() + longestTick
	last := time.Now().Add(wait)
	for told := false; ; told = true {
		r, err := meta.Register(ctx, b.cfg.Meta, in)
		if !errors.Is(err, meta.ErrDuplicateBroker) || b.lease == nil || time.Now().After(last) {
			return r, err
		}
		if !told {
			b.log.Warn("another broker is registered under this broker's id; if it has died, its session ends soon, else this one stops", "err", err, "waits", wait)
		}
		if !sleep(ctx, time.Second) {
			return r, err
		}
	}
}

// longestTick is how much later than its time a session may end.
const longestTick = 2 * time.Second

// self is this broker in its current registration; an epoch that no state names
// before it has one.
func (b *Broker) self() meta.Member {
	if r := b.registration(); r != nil {
		return r.Member()
	}
	return meta.Member{ID: b.cfg.NodeID, Epoch: 0}
}

// fence is the check that this broker is still registered as it believes to be.
func (b *Broker) fence() []meta.Op {
	if r := b.registration(); r != nil {
		return r.Fence()
	}
	return []meta.Op{{Kind: meta.Check, Path: meta.RegistrationPath(b.cfg.NodeID), Version: meta.Missing}} // matches nothing
}

// shutDownWait bounds how long a stop waits for the metadata store to take its
// mark. Without it the next start goes by the epochs that it has recorded (R6).
const shutDownWait = 5 * time.Second

// leave ends this broker's part in the cluster in order: when nothing is answered
// any more, the logs are flushed and closed, and the mark that vouches for them
// goes into the log directory first, then into the metadata store (C14).
func (b *Broker) leave(ctx context.Context) error {
	if b.replicas.dir == nil {
		return nil // it never joined
	}
	b.replicas.stop(ctx)
	if b.archive != nil {
		b.archive.Close()
	}
	if b.cache != nil {
		if err := b.cache.Close(); err != nil {
			b.log.Warn("closing the cache of the archive", "err", err)
		}
	}
	r := b.registration()
	if r == nil {
		return b.replicas.dir.Close(segment.CleanMark{})
	}
	nonce := newID()
	err := b.replicas.dir.Close(segment.CleanMark{BrokerEpoch: r.Epoch, StorageID: r.StorageID, Nonce: nonce})
	if err != nil {
		return err // no mark: the next start recovers
	}
	ctx, cancel := context.WithTimeout(ctx, shutDownWait)
	defer cancel()
	if err := meta.ShutDown(*r, nonce).Commit(ctx, b.cfg.Meta); err != nil {
		b.log.Warn("the metadata store doesn't take the mark of this clean shutdown; the next start goes by the epochs recorded here", "err", err)
	}
	return nil
}
