package broker

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/broker/config"
	"firn/replication/meta"
)

func TestThrottledReplicas(t *testing.T) {
	for _, c := range []struct {
		value     string
		p, broker int32
		want      bool
	}{
		{"", 0, 1, false},
		{"*", 7, 9, true},
		{"0:1,0:2,1:3", 0, 2, true},
		{"0:1, 0:2 ,1:3", 1, 3, true},
		{"0:1,0:2,1:3", 1, 1, false},
		{"0:1,0:2,1:3", 2, 3, false},
	} {
		if got := readThrottled(c.value).has(c.p, c.broker); got != c.want {
			t.Errorf("%q: replica of %d on %d throttled: %v", c.value, c.p, c.broker, got)
		}
	}
}

func TestRatesAreOfTheBroker(t *testing.T) {
	conf, _, err := config.NewBroker(config.NewRegistry(), config.Static{})
	if err != nil {
		t.Fatal(err)
	}
	b := &Broker{cfg: Config{NodeID: 1}}
	b.throttles.configure(conf)
	tp := &topic{
		Topic: meta.Topic{Replicas: [][]int32{{1}, {1}}}, states: make([]meta.PartitionState, 2),
		throttledLeaders: readThrottled("0:1"), throttledFollowers: readThrottled("1:1"),
	}
	now := time.Unix(100, 0)
	b.throttles.leader.Moved(now, 1<<30)
	if b.holdsBack(tp, 0, now) || b.waits(tp, 1, now) {
		t.Error("held back without a rate")
	}
	b.throttles.configure(conf.With(nil, map[string]string{"leader.replication.throttled.rate": "1000", "follower.replication.throttled.rate": "0"}))
	b.throttles.leader.Moved(now, 5000)
	if !b.holdsBack(tp, 0, now) || b.holdsBack(tp, 1, now) || b.holdsBack(tp, 0, now.Add(5*time.Second)) {
		t.Error("the leader's rate is not obeyed, or by others")
	}
	if !b.waits(tp, 1, now) || b.waits(tp, 0, now) {
		t.Error("the follower's rate is not obeyed, or by others")
	}
}

// A replica that is added is copied no faster than the rates say; one in sync is
// not held back.
func TestAReassignmentIsThrottled(t *testing.T) {
	for _, key := range []string{"leader.replication.throttled", "follower.replication.throttled"} {
		t.Run(key, func(t *testing.T) {
			c := startCluster(t, 3, "replica.fetch.max.bytes=20000")
			c.create("t", [][]int32{{1, 2}}, "min.insync.replicas=1", key+".replicas=*")
			c.inSyncWith("t", 1, 2)
			for range 20 {
				c.produceAll("t", strings.Repeat("x", 10_000))
			}
			set := func(rate string) {
				for _, n := range c.nodes {
					n.alterBroker(key+".rate", rate)
				}
			}
			set("2000") // two minutes' worth
			began := time.Now()
			if r := c.node(1).alterReplicas("t", 0, []int32{1, 2, 3}); r.ErrorCode != 0 {
				t.Fatalf("code %d %s", r.ErrorCode, words(r.ErrorMessage))
			}
			time.Sleep(time.Second) // the rate is what is tested
			c.produceAll("t", "the one in sync goes on meanwhile")
			if s := c.state("t", 0); len(s.ISR) != 2 {
				t.Errorf("200 kB were copied in %v at 2 kB/s: ISR %v", time.Since(began), s.ISR)
			}
			set("9223372036854775807")
			c.inSyncWith("t", 1, 2, 3)
		})
	}
}

// alterBroker sets a dynamic config of the broker.
func (n *node) alterBroker(key, value string) {
	n.t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Version = 1
	req.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{
		ResourceType: kmsg.ConfigResourceTypeBroker, ResourceName: strconv.Itoa(int(n.id)),
		Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: key, Value: &value}},
	}}
	if r := ask[*kmsg.IncrementalAlterConfigsResponse](n, req).Resources[0]; r.ErrorCode != 0 {
		n.t.Fatalf("%s=%s: code %d %s", key, value, r.ErrorCode, words(r.ErrorMessage))
	}
}
