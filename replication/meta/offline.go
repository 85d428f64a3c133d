package meta

import (
	"context"
	"errors"
	"slices"
)

// Offline is what a broker gives up: partitions whose replica here doesn't hold,
// whatever the registration says (S7), and leads, which others are to take over.
//
//	{"version": 1, "partitions": {"<topicId>": [0, 3]}, "draining": 7, "full": 7}
//
// What is false is left out of it.
type Offline struct {
	Broker     int32
	Partitions map[TopicID][]int32 // sorted
	// Draining is the broker epoch that ends with the draining under way, 0 for none.
	Draining int64
	// Full is the broker epoch in which the disk is too full to lead on, 0 for none:
	// a later registration has not said so.
	Full    int64
	Version int32
	Rev     int64
}

// Lost names a partition that a broker gives up.
type Lost struct {
	Topic     TopicID
	Partition int32
}

type offlineJSON struct {
	Version    int                `json:"version"`
	Partitions map[string][]int32 `json:"partitions"`
	Draining   int64              `json:"draining,omitempty"`
	Full       int64              `json:"full,omitempty"`
}

// Add lists further partitions.
func (o *Offline) Add(lost ...Lost) {
	if o.Partitions == nil {
		o.Partitions = make(map[TopicID][]int32)
	}
	for _, l := range lost {
		ps := o.Partitions[l.Topic]
		if i, found := slices.BinarySearch(ps, l.Partition); !found {
			o.Partitions[l.Topic] = slices.Insert(ps, i, l.Partition)
		}
	}
}

// Remove takes partitions off the list.
func (o *Offline) Remove(back ...Lost) {
	for _, l := range back {
		ps := o.Partitions[l.Topic]
		if i, found := slices.BinarySearch(ps, l.Partition); found {
			ps = slices.Delete(ps, i, i+1)
			o.Partitions[l.Topic] = ps
		}
		if len(ps) == 0 {
			delete(o.Partitions, l.Topic)
		}
	}
}

// Lists: the partition is given up.
func (o Offline) Lists(topic TopicID, partition int32) bool {
	_, found := slices.BinarySearch(o.Partitions[topic], partition)
	return found
}

// Drains: in the registration of this epoch, the broker is about to go.
func (o Offline) Drains(epoch int64) bool { return o.Draining != 0 && o.Draining == epoch }

// IsFull: in the registration of this epoch, its disk is too full to lead on.
func (o Offline) IsFull(epoch int64) bool { return o.Full != 0 && o.Full == epoch }

// encodeOffline is the value of o's node.
func encodeOffline(o Offline) []byte {
	j := offlineJSON{Version: 1, Partitions: make(map[string][]int32), Draining: o.Draining, Full: o.Full}
	for id, ps := range o.Partitions {
		j.Partitions[id.String()] = ps
	}
	return encode(j)
}

// decodeOffline reads what a broker gives up.
func decodeOffline(broker int32, n Node) (Offline, error) {
	what := "offline list of broker " + itoa(broker)
	var j offlineJSON
	if err := decode(what, n.Value, &j); err != nil {
		return Offline{}, err
	}
	o := Offline{Broker: broker, Draining: j.Draining, Full: j.Full, Version: n.Version, Rev: n.Rev}
	for key, ps := range j.Partitions {
		id, err := parseTopicID(key)
		if err != nil {
			return Offline{}, malformed(what, "topic id %.40q", key)
		}
		for _, p := range ps {
			if p < 0 {
				return Offline{}, malformed(what, "partition %d", p)
			}
			o.Add(Lost{id, p})
		}
	}
	return o, nil
}

// LoadOffline reads what a broker gives up; nothing, Missing, if it never did.
func LoadOffline(ctx context.Context, s Store, broker int32) (Offline, error) {
	n, err := s.Get(ctx, offlinePath(broker))
	if errors.Is(err, ErrNotFound) {
		return Offline{Broker: broker, Version: Missing}, nil
	}
	if err != nil {
		return Offline{}, err
	}
	return decodeOffline(broker, n)
}

// SetOffline writes what a broker gives up over the version that o names. The
// broker's own fence goes with it.
func SetOffline(o Offline) Write {
	return Write{
		Ops:  []Op{createOrSet(offlinePath(o.Broker), encodeOffline(o), o.Version)},
		Note: Note{Brokers: true},
	}
}
