package broker

import (
	"strings"

	"firn/replication"
	"firn/segment"
)

// rackAware is the class that replica.selector.class names for KIP-392; a class of
// that name in another package is taken for it.
const rackAware = "RackAwareReplicaSelector"

// selectsByRack: consumers are sent to replicas in their own rack.
func (b *Broker) selectsByRack() bool {
	c := b.settings()
	return c != nil && strings.HasSuffix(c.String("replica.selector.class"), rackAware)
}

// preferReplicas tells a consumer, of the partitions led here, which replica in its
// own rack to read from (KIP-392). Then the answer holds no records.
func (c *conn) preferReplicas(f *fetcher) {
	b := c.s.b
	if !b.selectsByRack() {
		return
	}
	x := b.topics.Load()
	rack := string(f.req.Rack)
	if self := x.broker(b.cfg.NodeID); self == nil || self.Rack == rack {
		return
	}
	var known [8]replication.Progress
	for i := range f.parts {
		p := &f.parts[i]
		if p.fixed {
			continue
		}
		o, err := p.p.Offsets(replication.View{Epoch: epochOf(p.want.LeaderEpoch)})
		if err != nil {
			continue // a follower answers itself; whatever else is wrong, the read tells
		}
		best := int64(-1)
		for _, r := range p.p.Followers(known[:0]) {
			br := x.broker(r.ID)
			if r.InSync && r.End >= p.want.Offset && r.End > best && br != nil && br.Rack == rack && endpoint(br, c.listener) != nil {
				best, p.preferred = r.End, r.ID
			}
		}
		if p.preferred >= 0 && p.want.Offset >= o.LogStart {
			p.fixed, p.code = true, 0
			p.res = segment.ReadResult{Offsets: o}
		} else {
			p.preferred = -1
		}
	}
}

// epochOf is the epoch that a client believes in, as a View has it.
func epochOf(epoch int32) int32 {
	if epoch < 0 {
		return replication.AnyEpoch
	}
	return epoch
}
