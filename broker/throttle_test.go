package broker

import (
	"testing"
	"time"

	"firn/broker/config"
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
	tp := &topic{throttledLeaders: readThrottled("0:1"), throttledFollowers: readThrottled("1:1")}
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
