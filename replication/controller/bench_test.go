package controller

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"firn/replication/meta"
)

// BenchmarkDecide decides on 100 000 partitions of three replicas on six brokers:
// that nothing is to be done, and that a sixth of them need another leader.
func BenchmarkDecide(b *testing.B) {
	img := &meta.Image{Brokers: map[int32]meta.Broker{}, Registrations: map[int32]meta.Registration{}, Topics: map[string]*meta.TopicImage{}}
	var brokers []meta.Broker
	for id := range int32(6) {
		img.Brokers[id] = meta.Broker{ID: id, Epoch: 1}
		img.Registrations[id] = meta.Registration{ID: id, Epoch: 1, ValidFrom: 1}
		brokers = append(brokers, img.Brokers[id])
	}
	for i := range 100 {
		t := &meta.TopicImage{Topic: meta.Topic{Name: fmt.Sprint("topic-", i), ID: meta.TopicID{byte(i)}}}
		t.Replicas = Place(brokers, 0, 1000, 3, rand.New(rand.NewPCG(1, uint64(i))))
		for _, ids := range t.Replicas {
			s := meta.PartitionState{Leader: meta.Member{ID: ids[0], Epoch: 1}}
			for _, id := range ids {
				s.ISR = append(s.ISR, meta.Member{ID: id, Epoch: 1})
			}
			t.States = append(t.States, s)
		}
		img.Topics[t.Name] = t
	}
	b.Run("nothing", func(b *testing.B) {
		for b.Loop() {
			if p := Decide(Snapshot{Image: img, Epoch: 1}); len(p.Changes) > 0 {
				b.Fatal(len(p.Changes))
			}
		}
	})
	delete(img.Brokers, 5)
	b.Run("a broker gone", func(b *testing.B) {
		for b.Loop() {
			if p := Decide(Snapshot{Image: img, Epoch: 1}); len(p.Changes) < 10_000 {
				b.Fatal(len(p.Changes))
			}
		}
	})
}
