package tiering

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"firn/tiering/objstore"
)

// Identity is firn.json: whose archive a prefix is. The owner has both ids in
// its metadata store too, and touches nothing where they differ.
type Identity struct {
	Format    int    `json:"format"`
	ClusterID string `json:"cluster_id"`
	// ArchiveID changes hands: whoever takes a prefix over puts a new one here,
	// and the owner before stops when it sees that.
	ArchiveID string `json:"archive_id"`
	// KeepBelow is set by a restore: the sweep leaves alone what leaders of
	// lower epochs wrote, until an operator releases it. What the restore's
	// manifests did not name may be all that is left of something.
	KeepBelow int32 `json:"keep_below,omitempty"`
}

// ErrNotOurs: the prefix belongs to another cluster, or has been taken over.
var ErrNotOurs = errors.New("tiering: archive belongs to another owner")

// ErrTakenOver, which comes with ErrNotOurs: it is this cluster's own archive,
// and a restore or adopt has given it to another broker. What was not archived
// is still here, so a broker may serve on; it must not write.
var ErrTakenOver = errors.New("tiering: archive was taken over")

// decodeIdentity reads a firn.json.
func decodeIdentity(b []byte) (Identity, error) {
	var id Identity
	if err := decodeJSON(b, &id); err != nil {
		return Identity{}, fmt.Errorf("firn.json: %w", err)
	}
	if id.ClusterID == "" || id.ArchiveID == "" {
		return Identity{}, fmt.Errorf("firn.json: %w: an id is missing", ErrCorrupt)
	}
	return id, nil
}

// LoadIdentity reads the prefix's firn.json; objstore.ErrNotFound if there is none.
func LoadIdentity(ctx context.Context, store objstore.Store) (Identity, error) {
	b, err := getAll(ctx, store, identityKey, maxJSON)
	if err != nil {
		return Identity{}, err
	}
	return decodeIdentity(b)
}

// TakeOver replaces the owner of a prefix, if it is still old; objstore.ErrChanged
// if it isn't. Restore and adopt do it before anything else.
func TakeOver(ctx context.Context, store objstore.Store, old, next Identity) error {
	have, err := getAll(ctx, store, identityKey, maxJSON)
	if err != nil {
		return err
	}
	id, err := decodeIdentity(have)
	if err != nil {
		return err
	}
	if id.ClusterID != old.ClusterID || id.ArchiveID != old.ArchiveID {
		return fmt.Errorf("tiering: take over: owner is %s/%s: %w", id.ClusterID, id.ArchiveID, objstore.ErrChanged)
	}
	next.Format = jsonFormat
	return objstore.Swap(ctx, store, identityKey, have, encodeJSON(next))
}

// checkOwner reports whether firn.json still carries our ids. It is asked
// before anything is deleted by a listing. ErrNotOurs is for good, and firn.json
// has no checksum: only two answers that agree prove it (T5).
func checkOwner(ctx context.Context, store objstore.Store, ours Identity) error {
	first, err := readOwner(ctx, store)
	if err != nil || first.is(ours) {
		return err
	}
	id, err := readOwner(ctx, store)
	switch {
	case err != nil || id.is(ours):
		return err
	case id != first:
		return fmt.Errorf("%w: firn.json is read differently each time", ErrUnavailable)
	case id == Identity{}:
		return fmt.Errorf("%w: firn.json is gone; put it back, or point archive.url at the right prefix", ErrNotOurs)
	}
	return fmt.Errorf("%w: firn.json names cluster %s, archive %s; this broker has %s, %s: another took it over by restore or adopt, "+
		"so this broker stops uploading to it and deleting from it", ErrNotOurs, id.ClusterID, id.ArchiveID, ours.ClusterID, ours.ArchiveID)
}

// readOwner reads firn.json; it is empty if there is none.
func readOwner(ctx context.Context, store objstore.Store) (Identity, error) {
	id, err := LoadIdentity(ctx, store)
	if errors.Is(err, objstore.ErrNotFound) {
		return Identity{}, nil
	}
	return id, err
}

// is: both name the same owner.
func (id Identity) is(other Identity) bool {
	return id.ClusterID == other.ClusterID && id.ArchiveID == other.ArchiveID
}

// Start is what a broker knows of its archive when it starts.
type Start struct {
	ClusterID string
	// ArchiveID is the one in the metadata store, "" if none was ever recorded.
	ArchiveID string
	// NewMetadata: the metadata store had no cluster id before this start. The id
	// is random then, so that a prefix which carries it has been claimed by another
	// broker that starts at this moment.
	NewMetadata bool
	// Archived is any partition with a pointer that names a manifest, and that
	// pointer; nil if there is none.
	Archived *struct {
		Partition Partition
		Pointer   Pointer
	}
	// NewID makes an archive id.
	NewID func() string
}

// CheckStart compares the metadata store with the prefix and returns the
// prefix's identity, for the caller to record in the metadata store. A prefix
// without owner gets this cluster as one; otherwise nothing is changed. An
// error that isn't the store's own tells the operator what to do. With ErrDamaged
// comes the identity all the same: it is the right archive, and not whole.
func CheckStart(ctx context.Context, store objstore.Store, s Start) (Identity, error) {
	id, err := LoadIdentity(ctx, store)
	if errors.Is(err, objstore.ErrNotFound) {
		return s.claim(ctx, store)
	}
	if err != nil {
		return Identity{}, err
	}
	switch {
	case id.ClusterID != s.ClusterID && s.NewMetadata:
		return Identity{}, fmt.Errorf("%w: the archive is that of cluster %s, and this broker is new (cluster %s): "+
			"to make a broker of that archive run `firn archive restore`, otherwise set archive.url to an empty prefix", ErrNotOurs, id.ClusterID, s.ClusterID)
	case id.ClusterID != s.ClusterID:
		return Identity{}, fmt.Errorf("%w: the archive is that of cluster %s, this is cluster %s: set archive.url to this cluster's own prefix",
			ErrNotOurs, id.ClusterID, s.ClusterID)
	case s.ArchiveID != "" && s.ArchiveID != id.ArchiveID:
		return Identity{}, fmt.Errorf("%w (%w): archive id %s in firn.json, %s in the metadata store: by a restore or adopt, or this metadata store is an old copy. "+
			"Copy what is only here to the new owner with any Kafka client, then retire this broker",
			ErrNotOurs, ErrTakenOver, id.ArchiveID, s.ArchiveID)
	}
	return id, s.holds(ctx, store)
}

// claim makes s the owner of a prefix that has none.
func (s Start) claim(ctx context.Context, store objstore.Store) (Identity, error) {
	if s.ArchiveID != "" || s.Archived != nil {
		return Identity{}, fmt.Errorf("%w: the metadata store names archived data, but there is no firn.json here: "+
			"archive.url points at the wrong place, or the archive was deleted", ErrNotOurs)
	}
	if s.NewMetadata {
		found := errors.New("found")
		var key string
		err := store.List(ctx, "", func(o objstore.Object) error {
			if strings.HasPrefix(o.Key, objstore.ProbePrefix) {
				return nil // another broker tries the store, or has died while it did
			}
			key = o.Key
			return found
		})
		if errors.Is(err, found) {
			if _, err := LoadIdentity(ctx, store); err == nil {
				return CheckStart(ctx, store, s) // somebody has claimed it meanwhile
			}
			return Identity{}, fmt.Errorf("%w: the metadata store is new and the archive's prefix is not empty (%s, and no firn.json): "+
				"set archive.url to an empty prefix", ErrNotOurs, key)
		}
		if err != nil {
			return Identity{}, err
		}
	}
	id := Identity{Format: jsonFormat, ClusterID: s.ClusterID, ArchiveID: s.NewID()}
	err := store.Create(ctx, identityKey, encodeJSON(id))
	if err == nil {
		return id, nil
	}
	// Another broker of this cluster was faster, or the answer got lost (Z3).
	have, lerr := LoadIdentity(ctx, store)
	if lerr != nil {
		return Identity{}, errors.Join(err, lerr)
	}
	if have.ClusterID != s.ClusterID {
		return Identity{}, fmt.Errorf("%w: cluster %s has just claimed this prefix; give each cluster its own", ErrNotOurs, have.ClusterID)
	}
	return have, nil
}

// holds checks that the archive has what the metadata store names, by one example.
func (s Start) holds(ctx context.Context, store objstore.Store) error {
	if s.Archived == nil {
		return nil
	}
	ptr := s.Archived.Pointer
	if _, err := getExact(ctx, store, ptr.ManifestKey, ptr.ManifestSize, ptr.ManifestCRC); errors.Is(err, objstore.ErrNotFound) {
		return fmt.Errorf("%w: %s of %s is missing, so nothing of that partition can be read: put the object back (`firn archive verify` lists all that is missing), "+
			"or rebuild the archive's manifests with `firn archive restore --rebuild`", ErrDamaged, ptr.ManifestKey, s.Archived.Partition)
	} else if err != nil {
		return err
	}
	return nil
}
