package tiering

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"

	"firn/segment"
	"firn/tiering/objstore"
)

// epochGap is how far above every leader epoch in the bucket a restored cluster
// begins, so that disks that survived the old one don't refuse its leaders.
const epochGap = 1_000_000

// producerIDGap is how far above every producer id in the archive a restored
// cluster hands out new ones. An id that is handed out twice makes a new
// producer's first records look like an old one's repetition, and they would be
// acknowledged without being written (E13). The gap is for the ids of what had
// not been archived: their producers may still live.
const producerIDGap = 1_000_000_000

// RestorePlan is what a new broker must know to go on from a bucket alone (T6).
// Whoever writes the metadata creates each topic with its id, configs and
// number of partitions, each partition's state with LeaderEpoch Epoch, and the
// pointers; and keeps Now's two ids.
type RestorePlan struct {
	// Was is firn.json as it was found, Now as it is after the takeover.
	Was, Now Identity
	// Epoch is the leader epoch for every partition: epochGap above all seen.
	Epoch int32
	// ProducerID is the first producer id that may be handed out.
	ProducerID int64
	Topics     []RestoreTopic
	// Deleted are topics with a tombstone: their objects are still there, for
	// a purge to remove.
	Deleted []TopicInfo
	// Unnamed counts the data objects and pages that no pointer will lead to,
	// and the bytes in them. They are kept: see ReleaseKept.
	Unnamed      int
	UnnamedBytes int64
	// Problems are what is damaged or missing of what will be served. A restore
	// goes on in spite of them only if told to.
	Problems []Problem

	rebuild bool
	// maxProducer is the highest producer id seen, -1 for none.
	maxProducer int64
}

// RestoreTopic is a topic to create.
type RestoreTopic struct {
	Info TopicInfo
	// Described: there was a topic.json; else the configs are not known.
	Described bool
	// Partitions has Info.Partitions elements, in order.
	Partitions []RestorePartition
}

// RestorePartition is a partition to create.
type RestorePartition struct {
	Partition Partition
	// Pointer is the one to create; its ManifestKey is empty, and there is none
	// to create, if nothing of the partition was archived.
	Pointer Pointer
	// Segments and Bytes are what the archive serves of it.
	Segments int
	Bytes    int64

	bucket *BucketPartition
}

// RestoreOptions says how to restore.
type RestoreOptions struct {
	// ArchiveID is the new one, which nobody has had.
	ArchiveID string
	// InSpiteOfProblems restores what is there; ranges that are lost answer
	// reads with an error.
	InSpiteOfProblems bool
	// Rebuild makes a manifest of the indexes where a partition has none. By
	// itself a restore takes such a partition for one of which nothing was
	// archived yet, and keeps what was on its way.
	Rebuild bool
	// Random makes the ids of new objects (T2).
	Random func() uint64
}

// PlanRestore reads the archive and tells what a restore would make of it. It
// writes nothing. What can't be read now is an error: it might have said more.
func PlanRestore(ctx context.Context, store objstore.Store, o RestoreOptions) (*RestorePlan, error) {
	b := NewBucket(store)
	was, err := b.Identity(ctx)
	if err != nil {
		return nil, err
	}
	topics, err := b.Topics(ctx)
	if err != nil {
		return nil, err
	}
	plan := &RestorePlan{Was: was, Now: was, rebuild: o.Rebuild, maxProducer: -1}
	maxEpoch := int32(-1)
	byName := make(map[string]TopicID)
	for i := range topics {
		t := &topics[i]
		if err := epochsSeen(ctx, store, t, &maxEpoch); err != nil {
			return nil, err
		}
		if t.Deleted {
			plan.Deleted = append(plan.Deleted, t.Info)
			continue
		}
		if other, twice := byName[t.Info.Name]; twice {
			return nil, fmt.Errorf("tiering: restore: two topics are named %s, with ids %s and %s: put a deleted.json beside the topic.json of the one to leave out",
				t.Info.Name, other, t.Info.ID)
		}
		byName[t.Info.Name] = t.Info.ID
		rt, err := plan.topic(ctx, b, t)
		if err != nil {
			return nil, err
		}
		plan.Topics = append(plan.Topics, rt)
	}
	if maxEpoch > math.MaxInt32-2*epochGap {
		return nil, fmt.Errorf("tiering: restore: leader epoch %d is too high to go on above it", maxEpoch)
	}
	plan.Epoch = max(maxEpoch, 0) + epochGap
	if plan.maxProducer > math.MaxInt64-2*producerIDGap {
		return nil, fmt.Errorf("tiering: restore: producer id %d is too high to go on above it", plan.maxProducer)
	}
	plan.ProducerID = plan.maxProducer + 1 + producerIDGap
	return plan, nil
}

// epochsSeen raises maxEpoch to the highest that a key of the topic has, named
// by anything or not.
func epochsSeen(ctx context.Context, store objstore.Store, t *BucketTopic, maxEpoch *int32) error {
	return store.List(ctx, topicDir(t.Info.Name, t.Info.ID), func(o objstore.Object) error {
		if k, ok := ParseKey(o.Key); ok {
			*maxEpoch = max(*maxEpoch, k.Epoch)
		}
		return nil
	})
}

func (plan *RestorePlan) topic(ctx context.Context, b *Bucket, t *BucketTopic) (RestoreTopic, error) {
	rt := RestoreTopic{Info: t.Info, Described: t.Described, Partitions: make([]RestorePartition, t.Info.Partitions)}
	if !t.Described {
		plan.Problems = append(plan.Problems, t.undescribed())
	}
	for num := range t.Info.Partitions {
		p := t.Part(num)
		bp, err := b.Partition(ctx, p)
		if err != nil {
			return rt, fmt.Errorf("tiering: restore %s: %w", p, err)
		}
		if err := b.mend(ctx, bp, plan.rebuild); err != nil {
			return rt, fmt.Errorf("tiering: restore %s: %w", p, err)
		}
		rp := RestorePartition{Partition: p, Pointer: bp.Pointer, bucket: bp}
		if err := plan.take(ctx, b, bp, &rp); err != nil {
			return rt, fmt.Errorf("tiering: restore %s: %w", p, err)
		}
		rt.Partitions[num] = rp
	}
	return rt, nil
}

// take counts what the partition will serve, and reports what of it is missing.
func (plan *RestorePlan) take(ctx context.Context, b *Bucket, bp *BucketPartition, rp *RestorePartition) error {
	plan.Problems = append(plan.Problems, bp.Problems...)
	objects := make(map[Key]int64)
	err := b.store.List(ctx, bp.Partition.Dir(), func(o objstore.Object) error {
		if k, ok := ParseKey(o.Key); ok && (k.Kind == KindLog || k.Kind == KindIndex || k.Kind == KindPage) {
			objects[k] = o.Size
		}
		return nil
	})
	if err != nil {
		return err
	}
	var newest *Entry
	for e, err := range b.Entries(ctx, bp) {
		var pe *PageError
		if errors.As(err, &pe) && aboutObject(err) {
			plan.Problems = append(plan.Problems, Problem{Partition: bp.Partition, Key: pe.Key, From: pe.From, Below: pe.Below, What: reason(pe.Err)})
			continue
		}
		if err != nil {
			return err
		}
		log := Key{Kind: KindLog, Partition: bp.Partition, Base: e.ObjectBase, Epoch: e.Epoch, ID: e.ID}
		idx := Key{Kind: KindIndex, Partition: bp.Partition, Base: e.FileBase, Epoch: e.Epoch, ID: e.ID}
		if e.End > bp.Manifest.LogStart {
			rp.Segments++
			rp.Bytes += e.Size
			plan.present(objects, log, e.Offset+e.Size, e)
			plan.present(objects, idx, e.IdxSize, e)
		}
		delete(objects, log)
		delete(objects, idx)
		newest = e
	}
	if err := plan.producers(ctx, b, bp, newest); err != nil {
		return err
	}
	if bp.Manifest != nil {
		for i := range bp.Manifest.Pages {
			r := &bp.Manifest.Pages[i]
			delete(objects, Key{Kind: KindPage, Partition: bp.Partition, Base: r.Base, Last: r.End - 1, Epoch: r.Epoch, ID: r.ID})
		}
	}
	for _, size := range objects {
		plan.Unnamed++
		plan.UnnamedBytes += size
	}
	return nil
}

// producers notes the producer ids that the partition's log will go on with: it
// starts again with the state that its newest index holds (T8).
func (plan *RestorePlan) producers(ctx context.Context, b *Bucket, bp *BucketPartition, newest *Entry) error {
	if newest == nil {
		return nil
	}
	x, err := b.Index(ctx, bp.Partition, newest)
	if aboutObject(err) {
		return nil // present has reported it, or a verify will
	}
	if err != nil {
		return err
	}
	if len(x.Producers) == 0 {
		return nil
	}
	id, err := segment.MaxProducerID(x.Producers)
	if err != nil {
		plan.Problems = append(plan.Problems, Problem{Partition: bp.Partition, Key: newest.IndexKey(bp.Partition), From: newest.Base, Below: newest.End, What: err.Error()})
		return nil
	}
	plan.maxProducer = max(plan.maxProducer, id)
	return nil
}

// present reports an object of an entry that is missing or too short.
func (plan *RestorePlan) present(objects map[Key]int64, k Key, size int64, e *Entry) {
	have, ok := objects[k]
	what := "missing"
	switch {
	case ok && have >= size:
		return
	case ok:
		what = fmt.Sprintf("has %d bytes, its entry says %d", have, size)
	}
	plan.Problems = append(plan.Problems, Problem{Partition: k.Partition, Key: k.String(), From: e.Base, Below: e.End, What: what})
}

// ErrDamaged: a restore would lose something, and was not told to go on.
var ErrDamaged = errors.New("tiering: the archive is damaged")

// Check is ErrDamaged if the plan has problems that o doesn't put up with.
func (plan *RestorePlan) Check(o RestoreOptions) error {
	if len(plan.Problems) > 0 && !o.InSpiteOfProblems {
		return fmt.Errorf("%w: %d problems, the first: %s", ErrDamaged, len(plan.Problems), plan.Problems[0])
	}
	return nil
}

// Restore takes the archive over and makes it ready for a new cluster: the plan
// it returns is then written to the metadata store. Whatever ends it, it can be
// begun again. Its order: a plan, to see that there can be one; a new archive
// id in firn.json by conditional write, at which the owner before stops; the plan
// that counts; a new manifest where there is no single one to point at.
func Restore(ctx context.Context, store objstore.Store, o RestoreOptions) (*RestorePlan, error) {
	plan, err := PlanRestore(ctx, store, o)
	if err != nil {
		return nil, err
	}
	if err := plan.Check(o); err != nil {
		return plan, err
	}
	was := plan.Was
	now := Identity{ClusterID: was.ClusterID, ArchiveID: o.ArchiveID, KeepBelow: plan.Epoch}
	if err := TakeOver(ctx, store, was, now); err != nil {
		return plan, err
	}
	// The owner before may have gone on until now.
	if plan, err = PlanRestore(ctx, store, o); err != nil {
		return nil, err
	}
	plan.Was = was
	if err := plan.Check(o); err != nil {
		return plan, err
	}
	for i := range plan.Topics {
		for j := range plan.Topics[i].Partitions {
			if err := plan.Topics[i].Partitions[j].settle(ctx, store, plan.Epoch, o.Random); err != nil {
				return plan, err
			}
		}
	}
	return plan, nil
}

// settle writes the manifest of a partition whose leaves were united.
func (rp *RestorePartition) settle(ctx context.Context, store objstore.Store, epoch int32, random func() uint64) error {
	bp := rp.bucket
	if !bp.United {
		return nil
	}
	m := *bp.Manifest
	m.Epoch, m.Seq, m.PrevKey, m.PrevCRC = epoch, max(bp.MaxSeq, 0)+1, bp.preferKey, bp.preferCRC
	m.Entries = bp.entries
	put := func(k Key, object []byte) error {
		return store.Put(ctx, k.String(), bytes.NewReader(object), int64(len(object)))
	}
	for len(m.Entries) >= 2*PageEntries {
		page := &Page{Topic: m.Topic, Partition: m.Partition, Entries: m.Entries[:PageEntries:PageEntries]}
		object := page.AppendTo(nil)
		ref := page.Ref(epoch, random(), object)
		if err := put(Key{Kind: KindPage, Partition: rp.Partition, Base: ref.Base, Last: ref.End - 1, Epoch: epoch, ID: ref.ID}, object); err != nil {
			return err
		}
		m.Pages, m.Entries = append(m.Pages, ref), m.Entries[PageEntries:]
	}
	object := m.AppendTo(nil)
	if _, err := DecodeManifest(object); err != nil {
		return fmt.Errorf("tiering: restore %s: the united manifest: %w", rp.Partition, err)
	}
	key := Key{Kind: KindManifest, Partition: rp.Partition, Epoch: epoch, Seq: m.Seq, ID: random()}
	if err := put(key, object); err != nil {
		return err
	}
	rp.Pointer = m.Pointer(key.String(), object)
	rp.Pointer.Version = NoPointer
	return nil
}

// ReleaseKept lets the sweep remove what a restore's manifests did not name: the
// operator has looked, or does not care.
func ReleaseKept(ctx context.Context, store objstore.Store) error {
	id, err := LoadIdentity(ctx, store)
	if err != nil || id.KeepBelow == 0 {
		return err
	}
	released := id
	released.KeepBelow = 0
	return TakeOver(ctx, store, id, released)
}
