package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// request is one decoded request that kmsg knows. Produce and Fetch don't pass
// here: they are parsed from the connection's own buffer.
type request struct {
	version  int16
	clientID string
	// listener is the name of the listener that the connection came in on, host
	// the peer's address without its port.
	listener string
	host     string
	msg      kmsg.Request
}

// handler answers a request. It runs on the connection's goroutine and may
// block: as in Kafka, a connection's next request waits for it. ctx ends when
// the broker stops or the connection is known to be gone. A nil response closes
// the connection.
type handler func(b *Broker, ctx context.Context, r *request) kmsg.Response

// api is a row of the dispatch table: what is advertised, and who answers.
type api struct {
	key      kmsg.Key
	min, max int16
	handle   handler // nil: has a path of its own
}

// apis is every API that we serve. What isn't here isn't advertised.
func apis() []api {
	return []api{
		{kmsg.Produce, 0, 13, nil}, // v0–2 are advertised for librdkafka and refused (KAFKA-18659)
		{kmsg.Fetch, 4, 18, nil},
		{kmsg.ApiVersions, 0, 4, apiVersions},
		{kmsg.ListOffsets, 1, 11, handleListOffsets},
		{kmsg.Metadata, 0, 13, handleMetadata},
		{kmsg.OffsetCommit, 2, 10, handleOffsetCommit},
		{kmsg.OffsetFetch, 1, 10, handleOffsetFetch},
		{kmsg.FindCoordinator, 0, 6, handleFindCoordinator},
		{kmsg.JoinGroup, 0, 9, handleJoinGroup},
		{kmsg.Heartbeat, 0, 4, handleHeartbeat},
		{kmsg.LeaveGroup, 0, 5, handleLeaveGroup},
		{kmsg.SyncGroup, 0, 5, handleSyncGroup},
		{kmsg.DescribeGroups, 0, 6, handleDescribeGroups},
		{kmsg.ListGroups, 0, 5, handleListGroups},
		{kmsg.CreateTopics, 2, 7, handleCreateTopics},
		{kmsg.DeleteTopics, 1, 6, handleDeleteTopics},
		{kmsg.DeleteRecords, 0, 2, handleDeleteRecords},
		{kmsg.InitProducerID, 0, 5, handleInitProducerID},
		{kmsg.OffsetForLeaderEpoch, 2, 4, handleOffsetForLeaderEpoch},
		{kmsg.DescribeConfigs, 1, 4, handleDescribeConfigs},
		{kmsg.AlterConfigs, 0, 2, handleAlterConfigs},
		{kmsg.DescribeLogDirs, 1, 5, handleDescribeLogDirs},
		{kmsg.CreatePartitions, 0, 3, handleCreatePartitions},
		{kmsg.DeleteGroups, 0, 2, handleDeleteGroups},
		{kmsg.ElectLeaders, 0, 2, handleElectLeaders},
		{kmsg.IncrementalAlterConfigs, 0, 1, handleIncrementalAlterConfigs},
		{kmsg.AlterPartitionAssignments, 0, 1, handleAlterPartitionReassignments},
		{kmsg.ListPartitionReassignments, 0, 0, handleListPartitionReassignments},
		{kmsg.OffsetDelete, 0, 0, handleOffsetDelete},
		{kmsg.DescribeCluster, 0, 2, handleDescribeCluster},
		{kmsg.DescribeProducers, 0, 0, handleDescribeProducers},
		{kmsg.UnregisterBroker, 0, 0, handleUnregisterBroker},
		{kmsg.DescribeTopicPartitions, 0, 0, handleDescribeTopicPartitions},
	}
}
