package meta

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Adoption is the move of a cluster's metadata into an empty store, from a single
// broker's or out of an archive. While its node stands no broker takes part: half
// of the tree would look like topics that were deleted.
//
//	adopt    {adopting, cluster id} ─▶ the tree ─▶ archive taken over ─▶ source marked ─▶ {archive id, adopting gone}
//	restore  {adopting, cluster id} ─▶ archive taken over ─▶ the tree ─▶ {archive id, adopting gone}
//
// Whatever ends it, it may be begun again, and then goes by the ids of the first try.
type Adoption struct {
	ClusterID string
	// ArchiveID is the one that the archive gets, empty if there is no archive.
	ArchiveID string
	// By is the command that does it, and may finish it; ByAdopt if empty.
	By string
}

// The commands that move a cluster's metadata.
const (
	ByAdopt   = "firn cluster adopt"
	ByRestore = "firn archive restore"
)

type adoptionJSON struct {
	Version   int    `json:"version"`
	ClusterID string `json:"cluster_id"`
	ArchiveID string `json:"archive_id,omitempty"`
	By        string `json:"by,omitempty"`
}

func (a Adoption) by() string { return cmp.Or(a.By, ByAdopt) }

var (
	// ErrAdopting: a move into this store is under way, or was interrupted.
	ErrAdopting = errors.New("meta: a cluster's metadata is being moved here")
	// ErrOccupied: another cluster lives here.
	ErrOccupied = errors.New("meta: the store already belongs to a cluster")
)

// CheckAdopted is ErrAdopting while an adoption isn't at its end. It is asked after
// the cluster's id has been read: who sees the id and no adoption sees all.
func CheckAdopted(ctx context.Context, s Store) error {
	n, err := s.Get(ctx, adopting)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	a, err := decodeAdoption(n)
	if err != nil {
		return err
	}
	return fmt.Errorf("%w; run %s again to finish it", ErrAdopting, a.by())
}

func decodeAdoption(n Node) (Adoption, error) {
	var j adoptionJSON
	if err := decode(adopting, n.Value, &j); err != nil {
		return Adoption{}, err
	}
	return Adoption{j.ClusterID, j.ArchiveID, j.By}, nil
}

// Begin begins the adoption in an empty store, or goes on with the one of this
// cluster that was interrupted: then what it has copied is removed, and a is that
// one's. ErrOccupied if the store isn't empty.
func (a Adoption) Begin(ctx context.Context, s Store) (Adoption, error) {
	if err := Init(ctx, s); err != nil {
		return a, err
	}
	n, err := s.Get(ctx, adopting)
	if err == nil {
		first, err := decodeAdoption(n)
		switch {
		case err != nil:
			return a, err
		case first.ClusterID != a.ClusterID:
			return a, fmt.Errorf("%w: cluster %s is moving in", ErrOccupied, first.ClusterID)
		case first.by() != a.by():
			return a, fmt.Errorf("%w: it is moving in by %s, which may be run again", ErrOccupied, first.by())
		}
		return first, first.clear(ctx, s)
	}
	if !errors.Is(err, ErrNotFound) {
		return a, err
	}
	for _, path := range []string{topics, registrations, brokerIDs} {
		names, err := s.Children(ctx, path)
		if err != nil {
			return a, err
		}
		if len(names) > 0 {
			return a, fmt.Errorf("%w: %s has %d nodes", ErrOccupied, path, len(names))
		}
	}
	err = s.Commit(ctx,
		Op{Kind: Create, Path: adopting, Value: encode(adoptionJSON{1, a.ClusterID, a.ArchiveID, a.By})},
		Op{Kind: Create, Path: clusterID, Value: encode(idJSON{"1", a.ClusterID})})
	if errors.Is(err, ErrExists) {
		return a, fmt.Errorf("%w: it has an id", ErrOccupied)
	}
	return a, err
}

// clear removes everything but what Begin has made.
func (a Adoption) clear(ctx context.Context, s Store) error {
	var doomed []Op
	var collect func(path string) error
	collect = func(path string) error {
		names, err := s.Children(ctx, path)
		if err != nil {
			return err
		}
		for _, name := range names {
			child := strings.TrimSuffix(path, "/") + "/" + name
			if kept(child) {
				continue
			}
			if err := collect(child); err != nil {
				return err
			}
			if !slices.Contains(roots[:], child) {
				doomed = append(doomed, Op{Kind: Delete, Path: child, Version: AnyVersion})
			}
		}
		return nil
	}
	if err := collect("/"); err != nil {
		return err
	}
	return a.commit(ctx, s, doomed)
}

// kept are nodes that an adoption neither copies nor removes: its own, and those
// of the store itself.
func kept(path string) bool {
	return path == adopting || path == clusterID || path == "/zookeeper" || path == "/firn/changes"
}

// Copy copies the tree of a store that nobody uses.
func (a Adoption) Copy(ctx context.Context, from, to Store) (nodes int, err error) {
	var all []Op
	var collect func(path string) error
	collect = func(path string) error {
		names, err := from.Children(ctx, path)
		if err != nil {
			return err
		}
		for _, name := range names {
			child := strings.TrimSuffix(path, "/") + "/" + name
			if kept(child) || child == archiveID {
				continue
			}
			n, err := from.Get(ctx, child)
			if err != nil {
				return err
			}
			if !slices.Contains(roots[:], child) {
				all = append(all, Op{Kind: Create, Path: child, Value: n.Value})
			}
			if err := collect(child); err != nil {
				return err
			}
		}
		return nil
	}
	if err := collect("/"); err != nil {
		return 0, err
	}
	return len(all), a.commit(ctx, to, all)
}

// End opens the store to brokers.
func (a Adoption) End(ctx context.Context, s Store) error {
	ops := []Op{{Kind: Delete, Path: adopting, Version: AnyVersion}}
	if a.ArchiveID != "" {
		ops = append(ops, Op{Kind: Create, Path: archiveID, Value: encode(idJSON{"1", a.ArchiveID})})
	}
	return s.Commit(ctx, ops...)
}

// Fenced is w, done only while the adoption stands.
func (a Adoption) Fenced(w Write) Write {
	w.Checks = append(w.Checks[:len(w.Checks):len(w.Checks)], Op{Kind: Check, Path: adopting, Version: AnyVersion})
	return w
}

// commit commits ops, as many at a time as may be, while the adoption stands.
func (a Adoption) commit(ctx context.Context, s Store, ops []Op) error {
	fence := Op{Kind: Check, Path: adopting, Version: AnyVersion}
	for len(ops) > 0 {
		n, bytes := 0, len(adopting)
		for n < len(ops) && n < MaxOps-1 {
			bytes += len(ops[n].Path) + len(ops[n].Value)
			if bytes > MaxBytes && n > 0 {
				break
			}
			n++
		}
		if err := s.Commit(ctx, append([]Op{fence}, ops[:n]...)...); err != nil {
			return err
		}
		ops = ops[n:]
	}
	return nil
}
