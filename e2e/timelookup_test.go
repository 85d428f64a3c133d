package e2e

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/e2e/harness"
)

// timeModel is a log as lookups by time see it: the timestamps of its records,
// one by one from offset 0, and where it begins.
type timeModel struct {
	times []int64
	start int64
}

// find is the first record at or after a time, or -1.
func (m *timeModel) find(at int64) (offset, found int64) {
	for o := m.start; o < int64(len(m.times)); o++ {
		if m.times[o] >= at {
			return o, m.times[o]
		}
	}
	return -1, -1
}

// latest is the first record that no other is younger than, or -1.
func (m *timeModel) latest() (offset int64) {
	offset = -1
	for o := m.start; o < int64(len(m.times)); o++ {
		if offset < 0 || m.times[o] > m.times[offset] {
			offset = o
		}
	}
	return offset
}

// fill appends batches whose timestamps rise, then jump about, then fall.
func (m *timeModel) fill(t *testing.T, addr, topic string, rng *rand.Rand) {
	t.Helper()
	for _, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.ZstdCompression()} {
		c := newClient(t, addr, kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(codec))
		for i := range 60 {
			var records []*kgo.Record
			for range 1 + rng.IntN(15) {
				at := rng.Int64N(100_000)
				switch i / 20 {
				case 0:
					at = int64(i)*1000 + at/100
				case 2:
					at = int64(60-i)*1000 + at/100
				}
				m.times = append(m.times, at)
				records = append(records, &kgo.Record{Value: []byte(strings.Repeat("a value that takes some room ", 1+rng.IntN(3))), Timestamp: time.UnixMilli(at)})
			}
			if err := c.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		c.Close()
	}
}

// TestTimeLookups asks for offsets by time in a log of shuffled timestamps whose
// old part lies in the archive alone, whose middle lies in both tiers, and whose
// start moves, and holds every answer against a scan.
func TestTimeLookups(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 8))
	f := harness.Start(t, harness.Options{Set: []string{"log.retention.check.interval.ms=200",
		"remote.log.manager.task.interval.ms=200", "log.segment.delete.delay.ms=0"}})
	createTopic(t, f.Addr, "events", 1, map[string]string{"segment.bytes": "4096", "local.retention.bytes": "20000", "local.retention.ms": "-1", "index.interval.bytes": "300"})
	var m timeModel
	m.fill(t, f.Addr, "events", rng)
	local := tiersApart(t, f.Addr)
	m.check(t, f.Addr, rng)

	t.Log("the log start moves to", local/2, "in the archive")
	m.deleteTo(t, f.Addr, local/2)
	m.check(t, f.Addr, rng)

	t.Log("after a restart, nothing is in memory")
	f.Kill()
	f.Restart()
	m.check(t, f.Addr, rng)

	t.Log("more records; then the log start moves past the archive's half into the local log")
	m.fill(t, f.Addr, "events", rng)
	local = tiersApart(t, f.Addr)
	m.check(t, f.Addr, rng)
	m.deleteTo(t, f.Addr, local+(int64(len(m.times))-local)/2)
	m.check(t, f.Addr, rng)
}

// tiersApart waits until a part of the log lies in the archive alone and a part
// in both, and returns where the local part begins.
func tiersApart(t *testing.T, addr string) (local int64) {
	t.Helper()
	adm := kadmClient(t, addr)
	was := int64(-1)
	harness.Eventually(t, 30*time.Second, "a part in the archive alone, a part in both", func() bool {
		l, err1 := adm.ListLocalLogStartOffsets(t.Context(), "events")
		r, err2 := adm.ListLatestRemoteOffsets(t.Context(), "events")
		from, _ := l.Lookup("events", 0)
		to, _ := r.Lookup("events", 0)
		settled := from.Offset == was
		was = from.Offset
		return err1 == nil && err2 == nil && settled && from.Offset > 100 && to.Offset > from.Offset
	})
	return was
}

func (m *timeModel) deleteTo(t *testing.T, addr string, offset int64) {
	t.Helper()
	var to kadm.Offsets
	to.Add(kadm.Offset{Topic: "events", At: offset})
	r, err := kadmClient(t, addr).DeleteRecords(t.Context(), to)
	if err != nil || r.Error() != nil {
		t.Fatal(err, r.Error())
	}
	m.start = offset
}

// check compares answers: of kadm, of a raw request for committed records, and
// of kcat for a few.
func (m *timeModel) check(t *testing.T, addr string, rng *rand.Rand) {
	t.Helper()
	cl := newClient(t, addr)
	defer cl.Close()
	adm := kadm.NewClient(cl)
	asked := []int64{0, 1, 99_999, 100_000, 1 << 40}
	for range 150 {
		asked = append(asked, m.times[rng.IntN(len(m.times))]+rng.Int64N(3)-1)
	}
	for _, at := range asked {
		at = max(at, 0)
		want, wantAt := m.find(at)
		for level := range int8(2) {
			if offset, found := listByTime(t, cl, at, level); offset != want || found != wantAt {
				t.Fatalf("isolation %d: the first record from %d on is %d (of %d), want %d (of %d); the log starts at %d", level, at, offset, found, want, wantAt, m.start)
			}
		}
		l, err := adm.ListOffsetsAfterMilli(t.Context(), at, "events")
		got, _ := l.Lookup("events", 0)
		if want < 0 {
			want = int64(len(m.times)) // kadm answers with the end
		}
		if err != nil || got.Err != nil || got.Offset != want {
			t.Fatalf("kadm: from %d on: %d, want %d: %v %v", at, got.Offset, want, err, got.Err)
		}
	}
	if offset, found := listByTime(t, cl, -3, 0); offset != m.latest() || found != m.times[offset] {
		t.Errorf("the youngest record is %d (of %d), want %d (of %d)", offset, found, m.latest(), m.times[m.latest()])
	}
	for _, at := range asked[5:8] {
		want, _ := m.find(at)
		if want < 0 {
			continue
		}
		got := harness.Must(t, time.Minute, "", harness.Kcat(t), "-b", addr, "-C", "-q", "-t", "events", "-p", "0", "-o", fmt.Sprint("s@", at), "-c", "1", "-f", "%o %T")
		if w := fmt.Sprint(want, " ", m.times[want]); got != w {
			t.Errorf("kcat from %d on reads %q, want %q", at, got, w)
		}
	}
}

// listByTime asks for one offset by time at an isolation level.
func listByTime(t *testing.T, cl *kgo.Client, at int64, level int8) (offset, found int64) {
	t.Helper()
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID, req.IsolationLevel = -1, level
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = "events"
	part := kmsg.NewListOffsetsRequestTopicPartition()
	part.Timestamp = at
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(t.Context(), cl)
	if err != nil {
		t.Fatal(err)
	}
	p := resp.Topics[0].Partitions[0]
	if p.ErrorCode != 0 {
		t.Fatalf("ListOffsets of %d: error %d", at, p.ErrorCode)
	}
	return p.Offset, p.Timestamp
}
