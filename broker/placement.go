package broker

import (
	"math/rand/v2"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"firn/replication/controller"
)

// maxPartitions is how many partitions a topic can have: its node, which lists
// their replicas, stays below 256 KiB.
const maxPartitions = 10_000

// placeReplicas spreads n partitions from number first on over the registered
// brokers and their racks.
func placeReplicas(x *topicIndex, first, n, factor int) ([][]int32, error) {
	brokers := len(x.brokers)
	if factor > brokers || brokers == 0 {
		return nil, refuse(kerr.InvalidReplicationFactor,
			"Unable to replicate the partition %d time(s): The target replication factor of %d cannot be reached because only %d broker(s) are registered.", factor, factor, brokers)
	}
	return controller.Place(x.brokers, first, n, factor, rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))), nil
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
