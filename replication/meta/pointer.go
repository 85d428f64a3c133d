package meta

import (
	"context"
	"errors"
)

type pointerJSON struct {
	Version     int    `json:"version"`
	Key         string `json:"manifest"`
	Size        int64  `json:"size"`
	CRC         uint32 `json:"crc32c"`
	Sequence    int64  `json:"sequence"`
	LastEpoch   int32  `json:"last_epoch"`
	LogStart    int64  `json:"log_start"`
	ArchivedEnd int64  `json:"archived_end"`
}

// maxManifestKey bounds a manifest's key: S3 takes no longer one.
const maxManifestKey = 1024

// EncodePointer is the value of p's node.
func EncodePointer(p Pointer) []byte {
	return encode(pointerJSON{1, p.ManifestKey, p.ManifestSize, p.ManifestCRC, p.Sequence, p.LastEpoch, p.LogStart, p.ArchivedEnd})
}

// decodePointer reads the node of a partition's pointer. It must be whole: local
// segments are deleted by it (T4).
func decodePointer(n Node) (Pointer, error) {
	const what = "archive pointer"
	var j pointerJSON
	if err := decode(what, n.Value, &j); err != nil {
		return Pointer{}, err
	}
	switch {
	case j.Version != 1:
		return Pointer{}, malformed(what, "version %d", j.Version)
	case len(j.Key) > maxManifestKey || j.Size < 0 || j.Sequence < 0 || j.LastEpoch < -1:
		return Pointer{}, malformed(what, "manifest %.100q of %d bytes, sequence %d, epoch %d", j.Key, j.Size, j.Sequence, j.LastEpoch)
	case j.LogStart < 0 || j.ArchivedEnd < j.LogStart: // T8
		return Pointer{}, malformed(what, "archived end %d, log start %d", j.ArchivedEnd, j.LogStart)
	}
	return Pointer{
		ManifestKey: j.Key, ManifestSize: j.Size, ManifestCRC: j.CRC, Sequence: j.Sequence,
		LastEpoch: j.LastEpoch, LogStart: j.LogStart, ArchivedEnd: j.ArchivedEnd, Version: n.Version, Rev: n.Rev,
	}, nil
}

// LoadPointer reads a partition's pointer. ok is false, and Version Missing, if
// it has none.
func LoadPointer(ctx context.Context, s Store, id TopicID, partition int32) (p Pointer, ok bool, err error) {
	n, err := s.Get(ctx, PointerPath(id, partition))
	if errors.Is(err, ErrNotFound) {
		return Pointer{LastEpoch: -1, Version: Missing}, false, nil
	}
	if err != nil {
		return Pointer{}, false, err
	}
	p, err = decodePointer(n)
	return p, err == nil, err
}

// PointerMove is a partition's next pointer and what it rests on.
type PointerMove struct {
	Topic     string
	ID        TopicID
	Partition int32
	// Pointer is the next one, over the version that it names.
	Pointer Pointer
	// StateVersion is that of the state under which the writer leads.
	StateVersion int32
	// Self is the writer's registration.
	Self Registration
}

// MovePointer is the commit point of the archive (T3), and its fence: with the
// pointer's version are checked that of the partition's state, the writer's
// registration and the topic, so that a leader that was replaced can't pass.
func MovePointer(m PointerMove) Write {
	return Write{
		Checks: append([]Op{CheckTopic(m.ID), checkState(m.Topic, m.Partition, m.StateVersion)}, m.Self.Fence()...),
		Ops:    []Op{createOrSet(PointerPath(m.ID, m.Partition), EncodePointer(m.Pointer), m.Pointer.Version)},
	}
}
