package tiering

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"

	"firn/tiering/objstore"
)

// TopicInfo is topic.json: what a restore must know of a topic besides its
// partitions' manifests (T6). It is the one object besides firn.json that is
// written again under its key: nothing that is archived depends on it.
type TopicInfo struct {
	Format     int               `json:"format"`
	Name       string            `json:"name"`
	ID         TopicID           `json:"id"`
	Partitions int32             `json:"partitions"`
	Configs    map[string]string `json:"configs,omitempty"`
}

// Tombstone is deleted.json: the topic is deleted, a restore skips it. Time is
// in Unix milliseconds, for whoever reads the bucket.
type Tombstone struct {
	Format int     `json:"format"`
	Name   string  `json:"name"`
	ID     TopicID `json:"id"`
	Time   int64   `json:"deleted_at"`
}

const (
	jsonFormat = 1
	// maxJSON bounds what any of the JSON objects may take.
	maxJSON = 1 << 20
)

// DecodeTopicInfo reads a topic.json.
func DecodeTopicInfo(b []byte) (TopicInfo, error) {
	var t TopicInfo
	if err := decodeJSON(b, &t); err != nil {
		return TopicInfo{}, fmt.Errorf("topic.json: %w", err)
	}
	if !validTopic(t.Name) || t.Partitions < 1 {
		return TopicInfo{}, fmt.Errorf("topic.json: %w: topic %q with %d partitions", ErrCorrupt, t.Name, t.Partitions)
	}
	return t, nil
}

// decodeJSON reads one JSON value that says its format. Fields that a later firn
// may add without a new format are skipped.
func decodeJSON(b []byte, into any) error {
	if len(b) > maxJSON {
		return fmt.Errorf("%w: %d bytes", ErrCorrupt, len(b))
	}
	var head struct{ Format int }
	if err := json.Unmarshal(b, &head); err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if head.Format > jsonFormat {
		return fmt.Errorf("%w: format %d, this firn reads up to %d", ErrVersion, head.Format, jsonFormat)
	}
	if head.Format < 1 {
		return fmt.Errorf("%w: format %d", ErrCorrupt, head.Format)
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return nil
}

func encodeJSON(v any) []byte {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		panic("tiering: encode " + reflect.TypeOf(v).Name() + ": " + err.Error()) // plain structs encode
	}
	return append(b, '\n')
}

// PutTopic makes the bucket say what a topic is now: after its configuration or
// its number of partitions has changed. Uploads do it by themselves once in each
// leader epoch.
func (a *Archive) PutTopic(ctx context.Context, t TopicInfo) error {
	if err := a.Owner(ctx); err != nil {
		return err
	}
	return putTopic(ctx, a.store, t)
}

// putTopic makes topic.json say t, if it doesn't yet.
func putTopic(ctx context.Context, store objstore.Store, t TopicInfo) error {
	t.Format = jsonFormat
	key := Key{Kind: KindTopic, Partition: Partition{Topic: t.Name, ID: t.ID}}.String()
	want := encodeJSON(t)
	have, err := getAll(ctx, store, key, maxJSON)
	if errors.Is(err, objstore.ErrNotFound) {
		if err = store.Create(ctx, key, want); !errors.Is(err, objstore.ErrExists) {
			return err
		}
		have, err = getAll(ctx, store, key, maxJSON)
	}
	if err != nil {
		return err
	}
	if bytes.Equal(have, want) {
		return nil
	}
	return store.Put(ctx, key, bytes.NewReader(want), int64(len(want)))
}

// putTombstone makes deleted.json exist.
func putTombstone(ctx context.Context, store objstore.Store, t Tombstone) error {
	t.Format = jsonFormat
	key := Key{Kind: KindDeleted, Partition: Partition{Topic: t.Name, ID: t.ID}}.String()
	if err := store.Create(ctx, key, encodeJSON(t)); !errors.Is(err, objstore.ErrExists) {
		return err
	}
	return nil
}

// getAll reads a whole object of at most limit bytes.
func getAll(ctx context.Context, store objstore.Store, key string, limit int64) ([]byte, error) {
	body, err := store.GetRange(ctx, key, 0, -1)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	b, err := io.ReadAll(io.LimitReader(body, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("%s: %w: more than %d bytes", key, ErrCorrupt, limit)
	}
	return b, nil
}

// getExact reads a whole object of which size and checksum are known.
func getExact(ctx context.Context, store objstore.Store, key string, size int64, crc uint32) ([]byte, error) {
	body, err := store.GetRange(ctx, key, 0, size)
	if errors.Is(err, objstore.ErrRange) {
		return nil, fmt.Errorf("%s: %w: shorter than %d bytes", key, ErrCorrupt, size)
	}
	if err != nil {
		return nil, err
	}
	defer body.Close()
	b := make([]byte, size)
	if _, err := io.ReadFull(body, b); err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	if got := Checksum(b); got != crc {
		return nil, fmt.Errorf("%s: %w: checksum %08x, want %08x", key, ErrCorrupt, got, crc)
	}
	return b, nil
}
