package tiering

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"firn/tiering/objstore"
)

func TestStartRefusesAnArchiveThatIsNotItsOwn(t *testing.T) {
	archived := &struct {
		Partition Partition
		Pointer   Pointer
	}{testPart, Pointer{ManifestKey: Key{Kind: KindManifest, Partition: testPart, Seq: 1}.String(), ManifestSize: 3, ManifestCRC: Checksum([]byte("abc"))}}
	owned := func(cluster, archive string) func(*objstore.Mem) {
		return func(s *objstore.Mem) {
			_ = s.Create(t.Context(), identityKey, encodeJSON(Identity{Format: 1, ClusterID: cluster, ArchiveID: archive}))
		}
	}
	for name, c := range map[string]struct {
		store   func(*objstore.Mem)
		start   Start
		want    string // in the message; "" is success
		archive string // the id that comes back
	}{
		"new cluster, empty prefix": {start: Start{ClusterID: "c1", NewMetadata: true}, archive: "fresh"},
		"new cluster, prefix in use": {store: func(s *objstore.Mem) { _ = s.Create(t.Context(), "a/b", nil) },
			start: Start{ClusterID: "c1", NewMetadata: true}, want: "not empty (a/b"},
		"new cluster, prefix of another": {store: owned("c9", "a9"), start: Start{ClusterID: "c1", NewMetadata: true}, want: "firn archive restore"},
		"new cluster, a peer was faster": {store: owned("c1", "a1"), start: Start{ClusterID: "c1", NewMetadata: true}, archive: "a1"},
		"new cluster, a peer tries the store": {store: func(s *objstore.Mem) { _ = s.Create(t.Context(), objstore.ProbePrefix+"x", nil) },
			start: Start{ClusterID: "c1", NewMetadata: true}, archive: "fresh"},
		"known cluster, its own": {store: owned("c1", "a1"), start: Start{ClusterID: "c1", ArchiveID: "a1"}, archive: "a1"},
		"known cluster, not yet recorded": {store: owned("c1", "a1"), start: Start{ClusterID: "c1"},
			archive: "a1"},
		"known cluster, prefix of another": {store: owned("c9", "a9"), start: Start{ClusterID: "c1", ArchiveID: "a1"}, want: "this cluster's own prefix"},
		"taken over":                       {store: owned("c1", "a2"), start: Start{ClusterID: "c1", ArchiveID: "a1"}, want: "taken over"},
		"archive switched on later":        {store: func(s *objstore.Mem) { _ = s.Create(t.Context(), "a/b", nil) }, start: Start{ClusterID: "c1"}, archive: "fresh"},
		"wrong place":                      {start: Start{ClusterID: "c1", ArchiveID: "a1"}, want: "wrong place"},
		"archived, but not here":           {store: owned("c1", "a1"), start: Start{ClusterID: "c1", ArchiveID: "a1", Archived: archived}, want: "is missing"},
		"archived here": {store: func(s *objstore.Mem) {
			owned("c1", "a1")(s)
			_ = s.Create(t.Context(), archived.Pointer.ManifestKey, []byte("abc"))
		}, start: Start{ClusterID: "c1", ArchiveID: "a1", Archived: archived}, archive: "a1"},
		"unreadable": {store: func(s *objstore.Mem) { _ = s.Create(t.Context(), identityKey, []byte("{")) }, start: Start{ClusterID: "c1"}, want: "corrupt"},
		"of a newer firn": {store: func(s *objstore.Mem) { _ = s.Create(t.Context(), identityKey, []byte(`{"format":2}`)) },
			start: Start{ClusterID: "c1"}, want: "newer format"},
	} {
		s := objstore.NewMem()
		if c.store != nil {
			c.store(s)
		}
		before := strings.Join(s.Keys(), " ")
		c.start.NewID = func() string { return "fresh" }
		id, err := CheckStart(t.Context(), s, c.start)
		switch {
		case c.want == "" && (err != nil || id.ArchiveID != c.archive || id.ClusterID != "c1"):
			t.Errorf("%s: %+v, %v", name, id, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v; want it to say %q", name, err, c.want)
		case c.want != "" && strings.Join(s.Keys(), " ") != before:
			t.Errorf("%s: changed the prefix", name)
		}
	}
}

// TestClaimIsSettled: the answer to the claim got lost, or another broker of the
// cluster was faster.
func TestClaimIsSettled(t *testing.T) {
	lost := errors.New("connection reset")
	s := objstore.Inject(objstore.NewMem(), func(op objstore.Op) objstore.Fault {
		if op.Kind == objstore.OpCreate {
			return objstore.Fault{After: lost}
		}
		return objstore.Fault{}
	})
	start := Start{ClusterID: "c1", NewMetadata: true, NewID: func() string { return "mine" }}
	if id, err := CheckStart(t.Context(), s, start); err != nil || id.ArchiveID != "mine" {
		t.Fatalf("%+v, %v", id, err)
	}
}

// TestClaimMeetsAPeer: between the look at firn.json and the look at the rest
// another broker of the same new cluster, or of another, has claimed the prefix.
func TestClaimMeetsAPeer(t *testing.T) {
	for cluster, want := range map[string]string{"c1": "", "c9": "another owner"} {
		mem := objstore.NewMem()
		s := objstore.Inject(mem, func(op objstore.Op) objstore.Fault {
			if op.Kind == objstore.OpList {
				_ = mem.Create(t.Context(), identityKey, encodeJSON(Identity{Format: 1, ClusterID: cluster, ArchiveID: "theirs"}))
			}
			return objstore.Fault{}
		})
		id, err := CheckStart(t.Context(), s, Start{ClusterID: "c1", NewMetadata: true, NewID: func() string { return "mine" }})
		switch {
		case want == "" && (err != nil || id.ArchiveID != "theirs"):
			t.Errorf("claimed by %s: %+v, %v", cluster, id, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("claimed by %s: %v", cluster, err)
		}
	}
}

func FuzzDecodeJSON(f *testing.F) {
	f.Add([]byte(`{"format":1,"cluster_id":"a","archive_id":"b"}`))
	f.Add(encodeJSON(TopicInfo{Format: 1, Name: "t", ID: testPart.ID, Partitions: 3, Configs: map[string]string{"a": "b"}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if id, err := decodeIdentity(b); err == nil {
			if again, err := decodeIdentity(encodeJSON(id)); err != nil || again != id {
				t.Fatalf("%+v, %v", again, err)
			}
		}
		if info, err := DecodeTopicInfo(b); err == nil {
			if _, err := DecodeTopicInfo(encodeJSON(info)); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// T5: what is read wrongly once must not end the uploads of a process for good.
func TestOnlyTwoAnswersThatAgreeProveAnotherOwner(t *testing.T) {
	store := objstore.NewMem()
	ours, err := CheckStart(t.Context(), store, Start{ClusterID: "c1", NewMetadata: true, NewID: func() string { return "a1" }})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(faults ...objstore.Fault) error {
		n := 0
		return checkOwner(t.Context(), objstore.Inject(store, func(objstore.Op) (x objstore.Fault) {
			if n < len(faults) {
				x = faults[n]
			}
			n++
			return x
		}), ours)
	}
	wrong := func(letter byte) objstore.Fault {
		return objstore.Fault{Corrupt: func(_ int64, b []byte) { copy(b[bytes.Index(b, []byte("c1")):], []byte{letter}) }}
	}
	gone := objstore.Fault{After: objstore.ErrNotFound}
	for name, faults := range map[string][]objstore.Fault{
		"right": nil, "wrong once": {wrong('x')}, "gone once": {gone},
	} {
		if err := ask(faults...); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := ask(wrong('x'), wrong('y')); !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrNotOurs) {
		t.Errorf("wrong in two ways: %v", err)
	}
	for name, faults := range map[string][]objstore.Fault{"wrong twice": {wrong('x'), wrong('x')}, "gone twice": {gone, gone}} {
		if err := ask(faults...); !errors.Is(err, ErrNotOurs) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
