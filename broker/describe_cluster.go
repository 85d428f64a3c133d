package broker

import (
	"context"
	"math"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// endpointBrokers in DescribeCluster asks for brokers; 2 asks for KRaft's
// controllers, which we don't have.
const endpointBrokers = 1

// handleDescribeCluster answers DescribeCluster: v0–2.
//
//	v1 EndpointType
//	v2 IncludeFencedBrokers: those that were registered and are away
func handleDescribeCluster(b *Broker, _ context.Context, r *request) kmsg.Response {
	req := r.msg.(*kmsg.DescribeClusterRequest)
	resp := req.ResponseKind().(*kmsg.DescribeClusterResponse)
	resp.EndpointType = req.EndpointType
	resp.ClusterAuthorizedOperations = math.MinInt32
	if r.version >= 1 && req.EndpointType != endpointBrokers {
		resp.ErrorCode = kerr.MismatchedEndpointType.Code
		if req.EndpointType != 2 {
			resp.ErrorCode = kerr.UnsupportedEndpointType.Code
		}
		resp.ErrorMessage = new("This endpoint serves brokers: there are no controllers apart from them.")
		return resp
	}
	x := b.topics.Load()
	resp.ClusterID = b.clusterID
	resp.ControllerID = x.controller
	for i := range x.brokers {
		if e := endpoint(&x.brokers[i], r.listener); e != nil {
			n := kmsg.NewDescribeClusterResponseBroker()
			n.NodeID, n.Host, n.Port, n.Rack = x.brokers[i].ID, e.Host, e.Port, rack(&x.brokers[i])
			resp.Brokers = append(resp.Brokers, n)
		}
	}
	if req.IncludeFencedBrokers {
		for _, id := range x.away() {
			n := kmsg.NewDescribeClusterResponseBroker()
			n.NodeID, n.Port, n.IsFenced = id, -1, true
			resp.Brokers = append(resp.Brokers, n)
		}
	}
	if req.IncludeClusterAuthorizedOperations {
		resp.ClusterAuthorizedOperations = clusterOperations
	}
	return resp
}

// away are the brokers that were registered, are not now, and were not unregistered.
func (x *topicIndex) away() (ids []int32) {
	for id, r := range x.registrations {
		if !r.Retired && x.broker(id) == nil {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
