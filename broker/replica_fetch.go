package broker

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"firn/replication"
	"firn/replication/meta"
	"firn/segment"
)

// replicaSince is the version of Fetch from which on a replica names its broker epoch.
const replicaSince = 15

// replicaFetch is which replica a Fetch comes from, and whether it is believed.
// What a replica says moves the high watermark (R1), so a plain client must not
// pass for one (A22): only the listener between brokers takes them, only in the
// present registration of that broker, and only of partitions assigned to it.
type replicaFetch struct {
	meta.Member // ID -1: a consumer
	// code is why none of its partitions are served; 0: see refused.
	code int16
	// proven is when the answer was sent that the request follows.
	proven time.Time
}

var noReplica = replicaFetch{Member: meta.Member{ID: -1, Epoch: -1}}

// admitted: it is a replica, and the one that it says.
func (r *replicaFetch) admitted() bool { return r.ID >= 0 && r.code == 0 }

// meetReplica judges who sends a Fetch with a replica id.
func (c *conn) meetReplica(f *fetcher) {
	f.replica = replicaFetch{Member: meta.Member{ID: f.req.ReplicaID, Epoch: f.req.ReplicaEpoch}}
	f.until, f.follower = segment.UntilCounted, false
	known := c.s.b.topics.Load().broker(f.req.ReplicaID)
	switch {
	case c.listener != c.s.b.interBroker || f.req.Version < replicaSince:
		f.replica.code = kerr.ClusterAuthorizationFailed.Code
	case known == nil || known.Epoch < f.req.ReplicaEpoch:
		// We are about to read of its registration; till then it tries again (A13).
		f.replica.code = kerr.UnknownLeaderEpoch.Code
	case known.Epoch > f.req.ReplicaEpoch:
		f.replica.code = kerr.ClusterAuthorizationFailed.Code
	}
}

// refused is the code with which a partition isn't served to the replica, 0 for none.
func (r *replicaFetch) refused(t *topic, p int32) int16 {
	if t.has(p) && !slices.Contains(t.Replicas[p], r.ID) {
		return kerr.ClusterAuthorizationFailed.Code
	}
	return r.code
}

// noteReplica takes what a replica's request tells of its logs, before it is
// answered.
func (c *conn) noteReplica(f *fetcher) {
	now := time.Now()
	for i := range f.parts {
		p := &f.parts[i]
		if p.fixed {
			continue
		}
		// A first fetch in an epoch proves nothing of it.
		proven := f.replica.proven
		if p.told == nil || p.told.epoch != p.want.LeaderEpoch {
			proven = time.Time{}
		}
		diverging, due, err := p.p.Fetched(replication.ReplicaFetch{
			Member:    f.replica.Member,
			Epoch:     p.want.LeaderEpoch,
			Offset:    p.want.Offset,
			LastEpoch: p.want.LastEpoch,
			Now:       now,
			Proven:    proven,
		})
		switch {
		case err != nil:
			p.fail(errorCode(err))
		case diverging.Epoch >= 0:
			p.fail(0)
			p.diverging = diverging
		case due:
			c.s.b.inSync.look(p.p)
		}
		p.offsets = !p.fixed && c.s.b.holdsBack(p.t, p.want.Index, now) && !p.p.InSync(f.replica.ID)
	}
}

// countReplicated counts what replicas have got of the partitions f.parts[from:below].
func (c *conn) countReplicated(f *fetcher, from, below, bytes int) {
	b := c.s.b
	b.followers.bytesOut.Add(int64(bytes))
	for i := from; i < below && bytes > 0; i++ {
		if p := &f.parts[i]; p.res.Records.Len() > 0 && p.t.throttledLeaders.has(p.want.Index, b.cfg.NodeID) {
			b.throttles.leader.Moved(time.Now(), p.res.Records.Len())
		}
	}
}
