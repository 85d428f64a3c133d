package broker

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"firn/broker/config"
	"firn/replication"
)

// throttles bound what replication moves for replicas that topics name, such as
// those of a reassignment under way. A replica in sync is never held back.
type throttles struct {
	// leader bounds what followers get from here, follower what is fetched here.
	leader, follower replication.Throttle
}

// configure takes on the rates.
func (th *throttles) configure(c *config.Broker) {
	th.leader.SetRate(c.Int("leader.replication.throttled.rate"))
	th.follower.SetRate(c.Int("follower.replication.throttled.rate"))
}

// throttledReplicas are the replicas that a topic has throttled; nil: none.
type throttledReplicas struct {
	all bool
	// of are the brokers by partition.
	of map[int32][]int32
}

// readThrottled reads "*", or partition:broker pairs. The value was validated
// when it was written.
func readThrottled(value string) *throttledReplicas {
	value = strings.TrimSpace(value)
	if value == "" {
		return nil
	}
	t := &throttledReplicas{all: value == "*", of: map[int32][]int32{}}
	for _, item := range config.SplitList(value) {
		p, b, _ := strings.Cut(item, ":")
		part, err := strconv.ParseInt(p, 10, 32)
		id, err2 := strconv.ParseInt(b, 10, 32)
		if err == nil && err2 == nil {
			t.of[int32(part)] = append(t.of[int32(part)], int32(id))
		}
	}
	return t
}

func (t *throttledReplicas) has(partition, broker int32) bool {
	return t != nil && (t.all || slices.Contains(t.of[partition], broker))
}

// holdsBack: as leader of the partition, this broker gives a follower that isn't in
// sync nothing more for now. What it gives it counts by throttles.leader.Moved.
func (b *Broker) holdsBack(t *topic, partition int32, now time.Time) bool {
	return t.throttledLeaders.has(partition, b.cfg.NodeID) && !b.throttles.leader.Open(now)
}

// waits: as follower of the partition that isn't in sync, this broker fetches
// nothing more for now. What it fetches it counts by throttles.follower.Moved.
func (b *Broker) waits(t *topic, partition int32, now time.Time) bool {
	return t.throttledFollowers.has(partition, b.cfg.NodeID) && !b.throttles.follower.Open(now)
}
