package broker

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"firn/segment"
	"firn/tiering/objstore"
)

// hosted is the node's replica of partition 0.
func (n *node) hosted(topic string) *replica {
	n.t.Helper()
	r := n.replicas.get(n.topics.Load().byName[topic].ID, 0)
	if r == nil {
		n.t.Fatalf("%s isn't hosted", topic)
	}
	return r
}

// logFiles lists the partition's segments, the active one last.
func (n *node) logFiles(topic string) []string {
	n.t.Helper()
	files, err := filepath.Glob(filepath.Join(n.dir, "logs", topic+"-0", "*.log"))
	if err != nil || len(files) == 0 {
		n.t.Fatal(files, err)
	}
	slices.Sort(files)
	return files
}

// meet cuts the file of the segment that begins at base in half, under the running
// broker, and has a reader meet that.
func (n *node) meet(topic string, file string, base int64) {
	n.t.Helper()
	info, err := os.Stat(file)
	if err == nil {
		err = os.Truncate(file, info.Size()/2)
	}
	if err != nil {
		n.t.Fatal(err)
	}
	l := n.hosted(topic).local
	s := segmentAt(n.t, l, base)
	res, err := l.Read(segment.ReadRequest{Offset: s.End - 1, MaxBytes: 1 << 20, MinOne: true, Until: segment.UntilCounted})
	if err == nil {
		res.Records.Release()
	}
	if !errors.Is(err, segment.ErrQuarantined) {
		n.t.Fatalf("the reader got %v", err)
	}
}

func segmentAt(t testing.TB, l *segment.Log, base int64) segment.SegmentInfo {
	t.Helper()
	all, err := l.Segments()
	i := slices.IndexFunc(all, func(s segment.SegmentInfo) bool { return s.Base == base })
	if err != nil || i < 0 {
		t.Fatalf("no segment at %d: %v", base, err)
	}
	return all[i]
}

func TestDamageOfWhatIsArchivedIsRepairedWhileServing(t *testing.T) {
	n := startNodeWith(t, t.TempDir(), objstore.NewMem())
	n.create("t", 1, "segment.bytes=1024")
	n.fill("t", 100)
	eventually(t, "archived", func() bool { return n.list("t", 0, -5).Offset > 50 })
	epoch := n.describe("t").Partitions[0].LeaderEpoch
	n.meet("t", n.logFiles("t")[0], 0)
	eventually(t, "repaired", func() bool { return n.hosted("t").local.Err() == nil })
	if start, local, end := n.list("t", 0, -2), n.list("t", 0, -4), n.list("t", 0, -1); start.Offset != 0 || local.Offset <= 50 || end.Offset != 100 {
		t.Errorf("it is %d to %d, on disk from %d", start.Offset, end.Offset, local.Offset)
	}
	if got := n.append("t", 0, 1).First; got != 100 {
		t.Errorf("the next record got offset %d", got)
	}
	if got := n.describe("t").Partitions[0].LeaderEpoch; got != epoch {
		t.Errorf("epoch %d, was %d", got, epoch)
	}
	if got := n.Problems(t.Context(), 0); len(got) > 0 {
		t.Error(got)
	}
}

func TestDamageOfWhatIsNotArchivedWaitsForItsOperator(t *testing.T) {
	n := startNodeWith(t, t.TempDir(), objstore.NewMem())
	n.create("t", 1, "segment.bytes=1024", "remote.log.copy.disable=true")
	n.fill("t", 100)
	file := n.logFiles("t")[2]
	base := segmentAt(t, n.hosted("t").local, 0).End
	base = segmentAt(t, n.hosted("t").local, base).End
	below := segmentAt(t, n.hosted("t").local, base).End
	n.meet("t", file, base)
	eventually(t, "refused", func() bool {
		problems := strings.Join(n.Problems(t.Context(), 0), "\n")
		return strings.Contains(problems, file) && strings.Contains(problems, "unclean.leader.election.enable=true") && strings.Contains(problems, "damaged")
	})
	if r := n.list("t", 0, -1); n.hosted("t").local.Err() == nil {
		t.Fatalf("in service: %+v", r)
	}
	if r := n.alter("t", "unclean.leader.election.enable", "true"); r.ErrorCode != 0 {
		t.Fatalf("code %d %s", r.ErrorCode, words(r.ErrorMessage))
	}
	eventually(t, "in service, and led", func() bool { return n.hosted("t").local.Err() == nil && n.list("t", 0, -1).ErrorCode == 0 })
	end := n.list("t", 0, -1).Offset
	if end < base || end >= below {
		t.Errorf("it ends at %d; the damage is in [%d, %d)", end, base, below)
	}
	if got := n.append("t", 0, 1).First; got != end {
		t.Errorf("the next record got offset %d, want %d", got, end)
	}
	n.restart()
	if got := n.list("t", 0, -1).Offset; got != end+1 {
		t.Errorf("after a restart it ends at %d", got)
	}
}

func TestADamagedLogFoundAtStartIsGivenUpUntilItsOperatorAcceptsTheLoss(t *testing.T) {
	for name, archive := range map[string]objstore.Store{"without an archive": nil, "with one": objstore.NewMem()} {
		t.Run(name, func(t *testing.T) {
			n := startNodeWith(t, t.TempDir(), archive)
			n.create("t", 1)
			n.fill("t", 20)
			if err := n.hosted("t").local.Flush(); err != nil {
				t.Fatal(err)
			}
			n.checkpoint(t.Context())
			m := n.crash()
			n.stop()
			files := m.logFiles("t")
			b, err := os.ReadFile(files[len(files)-1])
			if err != nil {
				t.Fatal(err)
			}
			b[len(b)-2] ^= 1
			if err := os.WriteFile(files[len(files)-1], b, 0o644); err != nil {
				t.Fatal(err)
			}
			m.start()
			if got := m.describe("t").Partitions[0]; got.Leader != -1 || got.ErrorCode != kerr.LeaderNotAvailable.Code {
				t.Fatalf("a damaged log is led: %+v", got)
			}
			if got := strings.Join(m.Problems(t.Context(), 0), "\n"); !strings.Contains(got, "offsets 19 to 19 are damaged") {
				t.Error(got)
			}
			m.alter("t", "unclean.leader.election.enable", "true")
			eventually(t, "led again", func() bool { return m.list("t", 0, -1).ErrorCode == 0 })
			if got := m.append("t", 0, 1).First; got != 19 {
				t.Errorf("the next record got offset %d", got)
			}
			m.restart()
			if got := m.list("t", 0, -1).Offset; got != 20 {
				t.Errorf("after a restart it ends at %d", got)
			}
		})
	}
}
