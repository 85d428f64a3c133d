package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"firn/broker/console"
)

// viewOf is a cluster of brokers 1 to n in racks a and b by turns, with partitions.
func viewOf(n int32, parts ...kadm.PartitionDetail) *clusterView {
	v := &clusterView{id: "c", controller: 1, live: map[int32]kadm.BrokerDetail{}, parts: parts, moving: kadm.ListPartitionReassignmentsResponses{}}
	for id := int32(1); id <= n; id++ {
		rack := []string{"b", "a"}[id%2]
		v.live[id] = kadm.BrokerDetail{NodeID: id, Host: "localhost", Port: 9090 + id, Rack: &rack}
	}
	return v
}

func part(topic string, p, leader int32, replicas, isr []int32) kadm.PartitionDetail {
	return kadm.PartitionDetail{Topic: topic, Partition: p, Leader: leader, Replicas: replicas, ISR: isr}
}

func TestTroublesSayWhy(t *testing.T) {
	v := viewOf(4,
		part("t", 0, 1, []int32{1, 2}, []int32{1, 2}),
		part("t", 1, 1, []int32{1, 5}, []int32{1}),
		part("t", 2, 1, []int32{1, 2}, []int32{1}),
		part("t", 3, 1, []int32{1, 2}, []int32{1}),
		part("t", 4, -1, []int32{5, 6}, []int32{5}),
		part("t", 5, -1, []int32{1, 2}, []int32{1}),
		part("t", 6, 1, []int32{1, 2, 3}, []int32{1}),
	)
	v.parts[3].OfflineReplicas = []int32{2}
	v.moving["t"] = map[int32]kadm.ListPartitionReassignmentsResponse{6: {Topic: "t", Partition: 6, Replicas: []int32{1, 2, 3}, AddingReplicas: []int32{3}}}
	want := [][2]string{
		{"under-replicated", "broker 5 is away"},
		{"under-replicated", "broker 2 lags"},
		{"under-replicated", "broker 2 has given its replica up"},
		{"offline", "broker 5 is away; broker 6 is away"},
		{"offline", "no replica can vouch"},
		{"under-min-isr", "broker 2 lags; broker 3 is being added and copies; acks=all is refused: 1 of min.insync.replicas=2"},
	}
	got := v.troubles(map[string]int{"t": 1})
	got[5] = v.troubles(map[string]int{"t": 2})[5]
	if len(got) != len(want) {
		t.Fatalf("%d troubles: %+v", len(got), got)
	}
	for i, w := range want {
		if got[i].Kind != w[0] || !strings.HasPrefix(got[i].Why, w[1]) {
			t.Errorf("%s: %s, %q, want %s, %q", got[i].where(), got[i].Kind, got[i].Why, w[0], w[1])
		}
	}
	if s := v.status(); s.Offline != 2 || s.UnderReplicated != 4 || s.Moving != 1 || !slices.Equal(s.Away, []int32{5, 6}) {
		t.Errorf("status %+v", s)
	}
}

// TestHealthAsksEachBroker what it lacks; what can't be found out is not well.
func TestHealthAsksEachBroker(t *testing.T) {
	ok := map[string]string{"metadata": "ok"}
	ask := func(id int32) (h console.Health, ps []console.ArchivePartition, err error) {
		switch h = (console.Health{Ready: true, Checks: ok}); id {
		case 2:
			h.Degraded = []string{"the store is away"}
			h.Checks = map[string]string{"metadata": "ok", "logs": "1 out of service"} // told in other words
			ps = []console.ArchivePartition{{Topic: "t", Partition: 3, LastError: "no answer"}}
		case 3:
			h.Ready, h.Checks = false, map[string]string{"metadata": "registering", "logs": "ok"}
		case 4:
			err = errors.New("refused")
		}
		return h, ps, err
	}
	found := brokerTroubles([]int32{1, 2, 3, 4}, time.Hour, ask)
	want := [][3]string{{"degraded", "broker 2", "away"}, {"un-archived", "t-3", "no answer"}, {"not-ready", "broker 3", "metadata: registering"}, {"unknown", "broker 4", "refused"}}
	if len(found) != len(want) {
		t.Fatalf("%+v", found)
	}
	for i, w := range want {
		if f := found[i]; f.Kind != w[0] || f.where() != w[1] || !strings.Contains(f.Why, w[2]) {
			t.Errorf("%s %s %s, want %v", f.Kind, f.where(), f.Why, w)
		}
	}
	for code, ids := range map[int][]int32{0: {1}, 1: {1, 2}, 2: {1, 4}} {
		e, err := (*exitError)(nil), showTroubles(&global{}, brokerTroubles(ids, time.Hour, ask))
		if got := errors.As(err, &e); got != (code > 0) || got && e.code != code {
			t.Errorf("brokers %v: %v, want exit code %d", ids, err, code)
		}
	}
	if err := showTroubles(&global{}, found); err == nil || err.(*exitError).code != 1 {
		t.Errorf("trouble and unknown: %v", err)
	}
}

func TestArchiveBehind(t *testing.T) {
	for why, p := range map[string]console.ArchivePartition{
		"":                                      {PendingBytes: 1 << 20, PendingSeconds: 60},
		"1.0 MiB pending since 3h0m0s: waits":   {PendingBytes: 1 << 20, PendingSeconds: 3 * 3600, Reason: "waits"},
		"1.0 MiB pending since 1m0s: no bucket": {PendingBytes: 1 << 20, PendingSeconds: 60, LastError: "no bucket"},
	} {
		if got := behind(p, 2*3600e9); got != why {
			t.Errorf("%q, want %q", got, why)
		}
	}
}

func TestPendingOfEachLeader(t *testing.T) {
	v := viewOf(3, part("t", 0, 2, []int32{1, 2}, nil), part("t", 1, 1, []int32{1, 2}, nil), part("t", 2, 3, []int32{3, 1}, nil))
	ps, unknown := v.pending(func(id int32) (ps []console.ArchivePartition, err error) {
		if id == 3 {
			return nil, errors.New("no answer")
		}
		for n := range int32(3) {
			ps = append(ps, console.ArchivePartition{Topic: "t", Partition: n, End: int64(id)})
		}
		return ps, nil
	})
	if len(ps) != 2 || ps[0].Partition != 0 || ps[0].End != 2 || ps[1].Partition != 1 || ps[1].End != 1 {
		t.Errorf("%+v", ps)
	}
	if unknown == nil || !strings.Contains(unknown.Error(), "broker 3") {
		t.Errorf("broker 3 did not answer: %v", unknown)
	}
}

func TestPendingOfATopic(t *testing.T) {
	all := []console.ArchivePartition{{Topic: "t"}, {Topic: "t", Partition: 1}, {Topic: "u"}}
	for arg, want := range map[string]int{"t": 2, "t:1": 1, "u": 1, "v": 0, "t:2": 0, "t:x": 0} {
		ps, err := pendingOf(slices.Clone(all), arg, nil)
		if len(ps) != want || (err == nil) != (want > 0) {
			t.Errorf("%s: %+v, %v", arg, ps, err)
		}
	}
	if _, err := pendingOf(nil, "t", errors.New("no answer")); err != nil {
		t.Errorf("some are unknown: %v", err)
	}
}

func TestDrainEmptiesABroker(t *testing.T) {
	var parts []kadm.PartitionDetail
	for p := range int32(12) {
		parts = append(parts, part("t", p, 1+p%4, []int32{1 + p%4, 1 + (p+1)%4}, nil))
	}
	v := viewOf(4, parts...)
	racked, err := v.drain(v.parts, 2)
	if err != nil || slices.ContainsFunc(racked, func(m moveView) bool { return m.To[0]%2 == m.To[1]%2 }) {
		t.Errorf("racks are not kept apart: %+v, %v", racked, err)
	}
	for id, d := range v.live {
		d.Rack = nil
		v.live[id] = d
	}
	moves, err := v.drain(v.parts, 2)
	if err != nil || len(moves) != 6 {
		t.Fatalf("%d moves, %v", len(moves), err)
	}
	load := map[int32]int{}
	for _, p := range parts {
		to := p.Replicas
		for _, m := range moves {
			if m.Partition == p.Partition {
				to = m.To
			}
		}
		if slices.Contains(to, 2) || to[0] == to[1] {
			t.Errorf("partition %d on %v", p.Partition, to)
		}
		for _, id := range to {
			load[id]++
		}
	}
	for id, n := range load {
		if n < 6 || n > 10 {
			t.Errorf("broker %d has %d of 24 replicas", id, n)
		}
	}
	if _, err := viewOf(2, part("t", 0, 1, []int32{1, 2}, nil)).drain([]kadm.PartitionDetail{part("t", 0, 1, []int32{1, 2}, nil)}, 2); err == nil {
		t.Error("drained where nobody can take it")
	}
	if _, err := v.drain(v.parts, 9); err == nil || !strings.Contains(err.Error(), "broker 9 is not known") || !strings.Contains(err.Error(), "1, 2, 3, 4") {
		t.Errorf("a broker that nobody knows: %v", err)
	}
	alone := viewOf(1, part("t", 0, 1, []int32{1}, nil))
	if _, err := alone.drain(alone.parts, 1); err == nil || !strings.Contains(err.Error(), "no broker but 1") {
		t.Errorf("the only broker: %v", err)
	}
	v.registered = []int32{5}
	if moves, err := v.drain(v.parts, 5); err != nil || len(moves) != 0 {
		t.Errorf("a broker that is away and empty: %+v, %v", moves, err)
	}
}

func TestSpread(t *testing.T) {
	v := viewOf(4, part("t", 0, 1, []int32{1}, nil), part("t", 1, 1, []int32{1}, nil), part("u", 0, 1, []int32{1, 2}, nil))
	moves, err := v.spread(v.parts, []int{3, 4}, 2, false)
	if err != nil || len(moves) != 3 {
		t.Fatalf("%+v, %v", moves, err)
	}
	if moves[0].To[0] == moves[1].To[0] {
		t.Errorf("one broker leads both of t: %+v", moves)
	}
	if moves, err = v.spread(v.parts[2:], []int{2, 1}, 0, true); err != nil || !slices.Equal(moves[0].To, []int32{2, 1}) {
		t.Errorf("exactly: %+v, %v", moves, err)
	}
	if _, err = v.spread(v.parts, []int{3}, 2, false); err == nil {
		t.Error("two replicas on one broker")
	}
	if _, err = v.spread(v.parts, []int{9}, 0, false); err == nil {
		t.Error("on a broker that isn't there")
	}
	for _, exactly := range []bool{false, true} {
		if _, err = v.spread(v.parts, []int{1, 1, 2}, 2, exactly); err == nil || !strings.Contains(err.Error(), "broker 1 twice") {
			t.Errorf("a broker named twice (exactly: %v): %v", exactly, err)
		}
	}
}

func TestWhyNothingIsArchivedIsSaidOnce(t *testing.T) {
	for want, p := range map[string]console.ArchivePartition{
		"":                        {},
		"503 slow down":           {Reason: "503 slow down", LastError: "503 slow down"},
		"not leading (no bucket)": {Reason: "not leading", LastError: "no bucket"},
	} {
		if got := pendingWhy(p); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
