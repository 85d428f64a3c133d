package broker

import (
	"math/rand/v2"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
)

// maxPartitions is how many partitions a topic can have: its node, which lists
// their replicas, stays below 256 KiB.
const maxPartitions = 10_000

// placeReplicas spreads n partitions from number first on over the registered
// brokers: leaders in turn from a random start, followers shifted against them,
// so that no broker's partitions all share their followers.
func placeReplicas(x *topicIndex, first, n, factor int) ([][]int32, error) {
	brokers := len(x.brokers)
	if factor > brokers || brokers == 0 {
		return nil, refuse(kerr.InvalidReplicationFactor,
			"Unable to replicate the partition %d time(s): The target replication factor of %d cannot be reached because only %d broker(s) are registered.", factor, factor, brokers)
	}
	start, shift := rand.IntN(brokers), rand.IntN(brokers)
	out := make([][]int32, n)
	for i := range out {
		p := first + i
		if p > 0 && p%brokers == 0 {
			shift++
		}
		lead := (start + p) % brokers
		out[i] = []int32{x.brokers[lead].ID}
		for r := range factor - 1 {
			out[i] = append(out[i], x.brokers[(lead+1+(shift+r)%(brokers-1))%brokers].ID)
		}
	}
	return out, nil
}

// checkAssignment judges replicas that a client has placed itself. factor 0
// takes the first partition's for all.
func checkAssignment(x *topicIndex, replicas [][]int32, factor int) error {
	for _, rs := range replicas {
		if len(rs) == 0 {
			return refuse(kerr.InvalidReplicaAssignment, "The manual partition assignment includes an empty replica list.")
		}
		if factor == 0 {
			factor = len(rs)
		}
		for i, id := range rs {
			if x.broker(id) == nil {
				return refuse(kerr.InvalidReplicaAssignment, "The manual partition assignment includes broker %d, but no such broker is registered.", id)
			}
			if slices.Contains(rs[:i], id) {
				return refuse(kerr.InvalidReplicaAssignment, "The manual partition assignment includes the broker %d more than once.", id)
			}
		}
		if len(rs) != factor {
			return refuse(kerr.InvalidReplicaAssignment, "The manual partition assignment includes a partition with %d replica(s), but this is not consistent with other partitions, which have %d replica(s).", len(rs), factor)
		}
	}
	return nil
}
