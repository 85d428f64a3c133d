package broker

import (
	"context"
	"math"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// endpointBrokers in DescribeCluster asks for brokers; 2 asks for KRaft's
// controllers, which we don't have.
const endpointBrokers = 1

// handleDescribeCluster answers DescribeCluster: v0–2.
//
//	v1 EndpointType
//	v2 IncludeFencedBrokers: a broker is either registered or not known, so there are none
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
		resp.ErrorMessage = ref("This endpoint serves brokers: there are no controllers apart from them.")
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
	if req.IncludeClusterAuthorizedOperations {
		resp.ClusterAuthorizedOperations = clusterOperations
	}
	return resp
}
