package meta

import (
	"context"
	"slices"
)

// Purge is the tombstone of a deleted topic: its archive is to be removed, and
// its logs on every broker that had one, those too that are away.
type Purge struct {
	ID         TopicID
	Name       string
	Partitions int
	// At is when the topic was deleted, in Unix milliseconds.
	At int64
	// Waiting are the brokers that have yet to say that its logs are gone.
	Waiting []int32
	Version int32
}

type purgeJSON struct {
	Version    int     `json:"version"`
	Name       string  `json:"topic"`
	Partitions int     `json:"partitions"`
	At         int64   `json:"deleted_at"`
	Waiting    []int32 `json:"brokers,omitempty"`
}

// newPurge is the tombstone of t.
func newPurge(t Topic, at int64) Purge {
	p := Purge{ID: t.ID, Name: t.Name, Partitions: len(t.Replicas), At: at}
	for _, replicas := range t.Replicas {
		p.Waiting = append(p.Waiting, replicas...)
	}
	slices.Sort(p.Waiting)
	p.Waiting = slices.Compact(p.Waiting)
	return p
}

func encodePurge(p Purge) []byte {
	return encode(purgeJSON{1, p.Name, p.Partitions, p.At, p.Waiting})
}

// DecodePurge reads the tombstone of topic id.
func DecodePurge(id TopicID, n Node) (Purge, error) {
	what := "tombstone of topic " + id.String()
	var j purgeJSON
	if err := decode(what, n.Value, &j); err != nil {
		return Purge{}, err
	}
	if j.Name == "" || j.Partitions < 0 {
		return Purge{}, malformed(what, "%d partitions of %.100q", j.Partitions, j.Name)
	}
	return Purge{ID: id, Name: j.Name, Partitions: j.Partitions, At: j.At, Waiting: j.Waiting, Version: n.Version}, nil
}

// LoadPurges reads all tombstones.
func LoadPurges(ctx context.Context, s Store) ([]Purge, error) {
	var all []Purge
	err := eachChild(ctx, s, purge, func(name string, n Node) error {
		id, err := parseTopicID(name)
		if err != nil {
			return err
		}
		p, err := DecodePurge(id, n)
		all = append(all, p)
		return err
	})
	return all, err
}

// LogsGone says that the broker has none of the topic's logs any more.
func LogsGone(p Purge, broker int32) Write {
	p.Waiting = without(p.Waiting, []int32{broker})
	return Write{Ops: []Op{{Kind: Set, Path: PurgePath(p.ID), Value: encodePurge(p), Version: p.Version}}}
}

// Purged removes the tombstone of a topic whose archive is gone.
func Purged(p Purge) Write {
	return Write{Ops: []Op{{Kind: Delete, Path: PurgePath(p.ID), Version: p.Version}}}
}
