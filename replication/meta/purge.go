package meta

import "context"

// Purge is the tombstone of a deleted topic: its archive is to be removed.
type Purge struct {
	ID         TopicID
	Name       string
	Partitions int
	// At is when the topic was deleted, in Unix milliseconds.
	At      int64
	Version int32
}

type purgeJSON struct {
	Version    int    `json:"version"`
	Name       string `json:"topic"`
	Partitions int    `json:"partitions"`
	At         int64  `json:"deleted_at"`
}

func encodePurge(t Topic, at int64) []byte {
	return encode(purgeJSON{1, t.Name, len(t.Replicas), at})
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
	return Purge{ID: id, Name: j.Name, Partitions: j.Partitions, At: j.At, Version: n.Version}, nil
}

// LoadPurges reads all tombstones.
func LoadPurges(ctx context.Context, s Store) ([]Purge, error) {
	var all []Purge
	err := eachChild(ctx, s, purge, func(name string, n Node) error {
		id, err := ParseTopicID(name)
		if err != nil {
			return err
		}
		p, err := DecodePurge(id, n)
		all = append(all, p)
		return err
	})
	return all, err
}

// Purged removes the tombstone of a topic whose archive is gone.
func Purged(p Purge) Write {
	return Write{Ops: []Op{{Kind: Delete, Path: PurgePath(p.ID), Version: p.Version}}}
}
