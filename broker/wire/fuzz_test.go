package wire

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// What kmsg reads we read the same, and what it refuses may not crash us.
func FuzzProduceRequest(f *testing.F) {
	for v := int16(0); v <= 13; v++ {
		r := kmsg.NewPtrProduceRequest()
		r.Version, r.Acks = v, -1
		t := kmsg.NewProduceRequestTopic()
		t.Topic = "t"
		p := kmsg.NewProduceRequestTopicPartition()
		p.Records = []byte("records")
		t.Partitions = append(t.Partitions, p)
		r.Topics = append(r.Topics, t)
		f.Add(v, r.AppendTo(nil))
	}
	f.Add(int16(9), []byte{0, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, v int16, b []byte) {
		if v < 0 || v > 13 {
			return
		}
		var got ProduceRequest
		if got.Parse(v, b) != nil {
			return
		}
		want := kmsg.NewPtrProduceRequest()
		want.Version = v
		if want.ReadFrom(b) != nil {
			return // kmsg's bounds are a little tighter in places
		}
		if diff := produceDiff(&got, want); diff != "" {
			t.Fatal(diff)
		}
	})
}

func FuzzFetchRequest(f *testing.F) {
	for v := int16(4); v <= 18; v++ {
		r := kmsg.NewPtrFetchRequest()
		r.Version = v
		t := kmsg.NewFetchRequestTopic()
		t.Topic = "t"
		t.Partitions = append(t.Partitions, kmsg.NewFetchRequestTopicPartition())
		r.Topics = append(r.Topics, t)
		g := kmsg.NewFetchRequestForgottenTopic()
		g.Topic, g.Partitions = "g", []int32{1}
		r.ForgottenTopics = append(r.ForgottenTopics, g)
		r.ReplicaState.ID = 3
		f.Add(v, r.AppendTo(nil))
	}
	f.Fuzz(func(t *testing.T, v int16, b []byte) {
		if v < 4 || v > 18 {
			return
		}
		var got FetchRequest
		if got.Parse(v, b) != nil {
			return
		}
		want := kmsg.NewPtrFetchRequest()
		want.Version = v
		if want.ReadFrom(b) != nil {
			return
		}
		if got.ReplicaID != want.ReplicaID && v <= 14 || len(got.Topics) != len(want.Topics) || got.MaxBytes != want.MaxBytes {
			t.Fatalf("%+v, want %+v", got, want)
		}
	})
}

func FuzzHeader(f *testing.F) {
	f.Add([]byte{0, 18, 0, 3, 0, 0, 0, 1, 0, 1, 'c', 0})
	f.Add([]byte{0, 18, 0, 3, 0, 0, 0, 1, 0xff, 0xff, 1, 0, 2, 9, 9})
	f.Fuzz(func(t *testing.T, b []byte) {
		_, rest, err := ParseHeader(b)
		if err == nil {
			_, _ = SkipHeaderTags(rest)
		}
	})
}
