package meta

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// Init makes the nodes that everything else stands below, where they are missing.
func Init(ctx context.Context, s Store) error {
	for _, path := range roots {
		if _, err := s.Get(ctx, path); err == nil {
			continue
		} else if !errors.Is(err, ErrNotFound) {
			return err
		}
		if err := s.Commit(ctx, Op{Kind: Create, Path: path}); err != nil && !errors.Is(err, ErrExists) {
			return fmt.Errorf("meta: creating %s: %w", path, err)
		}
	}
	return nil
}

// idJSON is the value of an id that is made once.
type idJSON struct {
	Version string `json:"version"`
	ID      string `json:"id"`
}

// LoadClusterID is the cluster's id; ErrNotFound if the store is new.
func LoadClusterID(ctx context.Context, s Store) (string, error) { return loadID(ctx, s, clusterID) }

// LoadArchiveID is the id of the archive that belongs to the cluster;
// ErrNotFound if it has had none.
func LoadArchiveID(ctx context.Context, s Store) (string, error) { return loadID(ctx, s, archiveID) }

// MakeClusterID is the cluster's id: candidate, if it has none yet.
func MakeClusterID(ctx context.Context, s Store, candidate string) (string, error) {
	return makeID(ctx, s, clusterID, candidate)
}

// MakeArchiveID is the archive's id: candidate, if there is none yet.
func MakeArchiveID(ctx context.Context, s Store, candidate string) (string, error) {
	return makeID(ctx, s, archiveID, candidate)
}

func loadID(ctx context.Context, s Store, path string) (string, error) {
	n, err := s.Get(ctx, path)
	if err != nil {
		return "", err
	}
	var j idJSON
	if err := decode(path, n.Value, &j); err != nil {
		return "", err
	}
	if j.ID == "" {
		return "", malformed(path, "no id")
	}
	return j.ID, nil
}

func makeID(ctx context.Context, s Store, path, candidate string) (string, error) {
	id, err := loadID(ctx, s, path)
	if !errors.Is(err, ErrNotFound) {
		return id, err
	}
	err = s.Commit(ctx, Op{Kind: Create, Path: path, Value: encode(idJSON{"1", candidate})})
	if err != nil && !errors.Is(err, ErrExists) {
		return "", fmt.Errorf("meta: creating %s: %w", path, err)
	}
	return loadID(ctx, s, path)
}

// ProducerIDBlock is how many producer ids a broker takes at a time, as in Kafka.
const ProducerIDBlock = 1000

type producerIDsJSON struct {
	Version int    `json:"version"`
	Broker  int32  `json:"broker"`
	Start   string `json:"block_start"`
	End     string `json:"block_end"` // inclusive
}

// ErrNoProducerIDs: all 2⁶³ are taken.
var ErrNoProducerIDs = errors.New("meta: no producer ids left")

// NextProducerIDs takes a block of ProducerIDBlock producer ids for a broker and
// returns the first. An id is handed out once: when the outcome of a try is
// unknown, its block is left alone and the next one taken (E13).
func NextProducerIDs(ctx context.Context, s Store, broker int32) (int64, error) {
	var last error
	for range 10 {
		first, version, err := nextProducerIDs(ctx, s)
		if err != nil {
			return 0, err
		}
		value := encode(producerIDsJSON{1, broker, strconv.FormatInt(first, 10), strconv.FormatInt(first+ProducerIDBlock-1, 10)})
		last = s.Commit(ctx, createOrSet(producerIDs, value, version))
		if last == nil {
			return first, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return 0, fmt.Errorf("meta: taking producer ids: %w", last)
}

// ReserveProducerIDs makes first the next producer id of a cluster that has
// handed out none: for a cluster that goes on from an archive.
func ReserveProducerIDs(first int64) Write {
	value := encode(producerIDsJSON{1, -1, strconv.FormatInt(first, 10), strconv.FormatInt(first-1, 10)})
	return Write{Ops: []Op{{Kind: Create, Path: producerIDs, Value: value}}}
}

func nextProducerIDs(ctx context.Context, s Store) (first int64, version int32, err error) {
	n, err := s.Get(ctx, producerIDs)
	if errors.Is(err, ErrNotFound) {
		return 0, Missing, nil
	}
	if err != nil {
		return 0, 0, err
	}
	var j producerIDsJSON
	if err := decode(producerIDs, n.Value, &j); err != nil {
		return 0, 0, err
	}
	end, err := strconv.ParseInt(j.End, 10, 64)
	if err != nil || end < -1 {
		return 0, 0, malformed("producer ids", "block end %.40q", j.End)
	}
	if end > math.MaxInt64-2*ProducerIDBlock {
		return 0, 0, ErrNoProducerIDs
	}
	return end + 1, n.Version, nil
}
