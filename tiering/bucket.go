package tiering

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"firn/tiering/objstore"
)

// Bucket reads an archive from the object store alone, without a broker or a
// metadata store (T6): what the tools behind `firn archive` stand on. It writes
// nothing. A broker may go on archiving meanwhile; what it adds may or may not
// be seen.
type Bucket struct {
	store objstore.Store
}

// NewBucket reads the archive in store.
func NewBucket(store objstore.Store) *Bucket { return &Bucket{store: store} }

// bucketReads is how many small objects are read at a time.
const bucketReads = 8

// Identity reads firn.json. It comes last when an archive is copied, so without
// it a prefix is not an archive, or not yet one.
func (b *Bucket) Identity(ctx context.Context) (Identity, error) {
	id, err := LoadIdentity(ctx, b.store)
	if errors.Is(err, objstore.ErrNotFound) {
		return Identity{}, fmt.Errorf("tiering: there is no firn.json: this is no archive, or a copy that was never finished: %w", err)
	}
	return id, err
}

// BucketTopic is a topic as the bucket has it.
type BucketTopic struct {
	// Info is topic.json. Where that is missing it holds the name, id and
	// number of partitions that the keys tell, and Described is false.
	Info      TopicInfo
	Described bool
	// Damage tells what is wrong with a topic.json that can't be decoded.
	Damage string
	// Deleted: there is a deleted.json.
	Deleted bool
	// Partitions are those that have objects.
	Partitions []int32
}

// Topics lists the archive's topics, deleted ones included, by name.
func (b *Bucket) Topics(ctx context.Context) ([]BucketTopic, error) {
	dirs, err := objstore.Folders(ctx, b.store, "")
	if err != nil {
		return nil, err
	}
	found := make([]*BucketTopic, len(dirs))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(bucketReads)
	for i, dir := range dirs {
		g.Go(func() (err error) {
			found[i], err = b.topic(ctx, dir)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	var topics []BucketTopic
	for _, t := range found {
		if t != nil {
			topics = append(topics, *t)
		}
	}
	slices.SortFunc(topics, func(a, b BucketTopic) int {
		if c := strings.Compare(a.Info.Name, b.Info.Name); c != 0 {
			return c
		}
		return strings.Compare(a.Info.ID.String(), b.Info.ID.String())
	})
	return topics, nil
}

// Lacks is an error that names what there is, where topics have nothing of this
// name, or not one of the partitions. No name is any topic.
func Lacks(topics []BucketTopic, name string, partitions []int32) error {
	if name == "" {
		return nil
	}
	var names []string
	count, found := int32(0), false
	for i := range topics {
		if t := &topics[i]; t.Info.Name == name {
			count, found = max(count, t.Info.Partitions), true
		}
		names = append(names, topics[i].Info.Name)
	}
	if !found {
		const enough = 20
		names = slices.Compact(names)
		if more := len(names) - enough; more > 0 {
			names = append(names[:enough], fmt.Sprintf("%d more", more))
		}
		return fmt.Errorf("tiering: the archive has no topic %s, but %s: %w", name, cmp.Or(strings.Join(names, ", "), "none at all"), objstore.ErrNotFound)
	}
	for _, p := range partitions {
		if p < 0 || p >= count {
			return fmt.Errorf("tiering: the archive has no partition %d of %s, which has %d, from 0 on: %w", p, name, count, objstore.ErrNotFound)
		}
	}
	return nil
}

// topic reads one topic; nil if dir is none.
func (b *Bucket) topic(ctx context.Context, dir string) (*BucketTopic, error) {
	key, ok := ParseKey(dir + "/topic.json")
	if !ok {
		return nil, nil
	}
	name, id := key.Partition.Topic, key.Partition.ID
	t := &BucketTopic{Info: TopicInfo{Format: jsonFormat, Name: name, ID: id}}
	nums, err := objstore.Folders(ctx, b.store, dir+"/")
	if err != nil {
		return nil, err
	}
	for _, s := range nums {
		if n, err := strconv.ParseInt(s, 10, 32); err == nil && n >= 0 && strconv.FormatInt(n, 10) == s {
			t.Partitions = append(t.Partitions, int32(n))
		}
	}
	slices.Sort(t.Partitions)

	object, err := getAll(ctx, b.store, key.String(), maxJSON)
	switch {
	case err == nil:
		info, err := DecodeTopicInfo(object)
		if err == nil && (info.Name != name || info.ID != id) {
			err = fmt.Errorf("%w: it is that of %s, %s", ErrCorrupt, info.Name, info.ID)
		}
		switch {
		case err == nil:
			t.Info, t.Described = info, true
		case errors.Is(err, ErrCorrupt):
			t.Damage = err.Error()
		default:
			return nil, err
		}
	case !errors.Is(err, objstore.ErrNotFound):
		return nil, err
	}
	if n := len(t.Partitions); n > 0 {
		t.Info.Partitions = max(t.Info.Partitions, t.Partitions[n-1]+1)
	}

	key.Kind = KindDeleted
	_, err = getAll(ctx, b.store, key.String(), maxJSON)
	switch {
	case err == nil:
		t.Deleted = true
	case !errors.Is(err, objstore.ErrNotFound):
		return nil, err
	}
	if !t.Described && t.Damage == "" && !t.Deleted && len(t.Partitions) == 0 {
		return nil, nil
	}
	return t, nil
}

// undescribed is the problem of a topic without a readable topic.json.
func (t *BucketTopic) undescribed() Problem {
	what := t.Damage
	if what == "" {
		what = "missing"
	}
	key := Key{Kind: KindTopic, Partition: t.Part(0)}
	return Problem{Partition: t.Part(0), Key: key.String(), What: what + ": the topic's configs are not known"}
}

// Part is the topic's partition num.
func (t *BucketTopic) Part(num int32) Partition {
	return Partition{Topic: t.Info.Name, ID: t.Info.ID, Num: num}
}

// Problem is something wrong with an archive.
type Problem struct {
	Partition Partition `json:"-"`
	// Key of the object that it is about, if it is about one.
	Key string `json:"key,omitempty"`
	// From and Below are the offsets that it concerns; equal if it concerns none.
	From  int64  `json:"from"`
	Below int64  `json:"below"`
	What  string `json:"what"`
}

func (p Problem) String() string {
	var s strings.Builder
	s.WriteString(p.Partition.String())
	if p.From < p.Below {
		fmt.Fprintf(&s, " [%d, %d)", p.From, p.Below)
	}
	if p.Key != "" {
		s.WriteString(" " + p.Key)
	}
	return s.String() + ": " + p.What
}
