package meta

import (
	"context"
	"errors"
	"slices"
	"strconv"
)

// topicJSON is the value of a topic's node: Kafka's version 3, and deleting.
type topicJSON struct {
	Version    int                `json:"version"`
	TopicID    string             `json:"topic_id"`
	Partitions map[string][]int32 `json:"partitions"`
	Adding     map[string][]int32 `json:"adding_replicas"`
	Removing   map[string][]int32 `json:"removing_replicas"`
	Deleting   bool               `json:"deleting,omitempty"`
}

const topicVersion = 3

// encodeTopic is the value of t's node.
func encodeTopic(t Topic) []byte {
	j := topicJSON{
		Version:    topicVersion,
		TopicID:    t.ID.String(),
		Partitions: make(map[string][]int32, len(t.Replicas)),
		Adding:     encodeMoves(t.Adding),
		Removing:   encodeMoves(t.Removing),
		Deleting:   t.Deleting,
	}
	for p, replicas := range t.Replicas {
		j.Partitions[strconv.Itoa(p)] = replicas
	}
	return encode(j)
}

func encodeMoves(moves map[int32][]int32) map[string][]int32 {
	j := make(map[string][]int32, len(moves))
	for p, replicas := range moves {
		j[itoa(p)] = replicas
	}
	return j
}

// DecodeTopic reads the node of the topic called name.
func DecodeTopic(name string, n Node) (Topic, error) {
	what := "topic " + name
	var j topicJSON
	if err := decode(what, n.Value, &j); err != nil {
		return Topic{}, err
	}
	id, err := parseTopicID(j.TopicID)
	if err != nil {
		return Topic{}, err
	}
	t := Topic{
		Name:     name,
		ID:       id,
		Replicas: make([][]int32, len(j.Partitions)),
		Deleting: j.Deleting,
		Version:  n.Version,
		Rev:      n.Rev,
	}
	for key, replicas := range j.Partitions {
		p, err := strconv.Atoi(key)
		if err != nil || p < 0 || p >= len(t.Replicas) || t.Replicas[p] != nil {
			return Topic{}, malformed(what, "partition %.20q of %d", key, len(t.Replicas))
		}
		if len(replicas) == 0 || !distinct(replicas) {
			return Topic{}, malformed(what, "replicas %v of partition %d", replicas, p)
		}
		t.Replicas[p] = replicas
	}
	if t.Adding, err = decodeMoves(what, j.Adding, len(t.Replicas)); err != nil {
		return Topic{}, err
	}
	if t.Removing, err = decodeMoves(what, j.Removing, len(t.Replicas)); err != nil {
		return Topic{}, err
	}
	return t, nil
}

func decodeMoves(what string, j map[string][]int32, partitions int) (map[int32][]int32, error) {
	if len(j) == 0 {
		return nil, nil
	}
	moves := make(map[int32][]int32, len(j))
	for key, replicas := range j {
		p, err := strconv.ParseInt(key, 10, 32)
		if err != nil || p < 0 || p >= int64(partitions) || !distinct(replicas) {
			return nil, malformed(what, "reassignment of partition %.20q: %v", key, replicas)
		}
		moves[int32(p)] = replicas
	}
	return moves, nil
}

// distinct: ids of brokers, each once.
func distinct(ids []int32) bool {
	for i, id := range ids {
		if id < 0 {
			return false
		}
		if slices.Contains(ids[:i], id) {
			return false
		}
	}
	return true
}

// CheckTopic is the check that a topic still exists; part of every write that
// concerns a partition (R4): a topic made again under the name is another.
func CheckTopic(id TopicID) Op {
	return Op{Kind: Check, Path: TopicIDPath(id), Version: AnyVersion}
}

// topicIDJSON is the value of the node that exists while the topic does.
type topicIDJSON struct {
	Version int    `json:"version"`
	Name    string `json:"name"`
}

// CreateTopic creates a topic with its configs. Its node is the commit point;
// the states of its partitions are the controller's to make. A *Conflict with
// ErrExists means that the name is taken.
func CreateTopic(t Topic, config map[string]string) Write {
	create := func(path string, value []byte) Op { return Op{Kind: Create, Path: path, Value: value} }
	return Write{
		Ops: []Op{
			create(TopicPath(t.Name), encodeTopic(t)),
			create(partitionsPath(t.Name), nil),
			create(TopicIDPath(t.ID), encode(topicIDJSON{Version: 1, Name: t.Name})),
			create(tierPath(t.ID), nil),
			create(ConfigPath(TopicConfig, t.Name), encodeConfig(config)),
		},
		Note: Note{Topics: []string{t.Name}},
	}
}

// SetTopic writes t over the version of it that t names: partitions added, a
// reassignment begun or ended.
func SetTopic(t Topic) Write {
	return Write{
		Checks: []Op{CheckTopic(t.ID)},
		Ops:    []Op{{Kind: Set, Path: TopicPath(t.Name), Value: encodeTopic(t), Version: t.Version}},
		Note:   Note{Topics: []string{t.Name}},
	}
}

// DeleteTopic deletes t: from here on no write that concerns it passes, and the
// tombstone says that its archive is to be purged. at is the wall time in Unix
// milliseconds. FinishDelete frees the name.
func DeleteTopic(t Topic, at int64) Write {
	t.Deleting = true
	w := SetTopic(t)
	w.Checks = nil // the Delete is one
	w.Ops = append(w.Ops,
		Op{Kind: Delete, Path: TopicIDPath(t.ID), Version: AnyVersion},
		Op{Kind: Delete, Path: ConfigPath(TopicConfig, t.Name), Version: AnyVersion},
		Op{Kind: Create, Path: PurgePath(t.ID), Value: encodePurge(newPurge(t, at))},
	)
	return w
}

// FinishDelete removes what is left of a topic that is Deleting: partitions,
// pointers, and last the node itself. Writes that find their nodes gone already
// are refused with ErrNotFound, which is as good.
func FinishDelete(ctx context.Context, s Store, t Topic) ([]Write, error) {
	var writes []Write
	remove := func(paths ...string) {
		var w Write
		for _, path := range paths {
			w.Ops = append(w.Ops, Op{Kind: Delete, Path: path, Version: AnyVersion})
		}
		writes = append(writes, w)
	}
	names, err := s.Children(ctx, partitionsPath(t.Name))
	if err != nil && !errors.Is(err, ErrNotFound) {
		return nil, err
	}
	for _, name := range names {
		p := partitionsPath(t.Name) + "/" + name
		remove(p+"/state", p)
	}
	pointers, err := s.Children(ctx, tierPath(t.ID))
	if err != nil && !errors.Is(err, ErrNotFound) {
		return nil, err
	}
	for _, name := range pointers {
		remove(tierPath(t.ID) + "/" + name)
	}
	if err == nil {
		remove(tierPath(t.ID))
	}
	remove(partitionsPath(t.Name), TopicPath(t.Name))
	writes[len(writes)-1].Note = Note{Topics: []string{t.Name}}
	return writes, nil
}
