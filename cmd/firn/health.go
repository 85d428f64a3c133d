package main

import (
	"context"
	"fmt"
	"maps"
	"time"

	"firn/broker/console"
)

// health answers the console from the broker.
type health struct{ n *node }

func (h health) Health(ctx context.Context, fresh time.Duration) console.Health {
	out := console.Health{Degraded: h.n.broker.Problems(ctx, fresh), Checks: map[string]string{"metadata": "ok", "logs": "ok", "groups": "ok"}}
	if n := h.n.broker.OutOfService(); n > 0 {
		out.Checks["logs"] = fmt.Sprintf("%d out of service", n) // clients may come all the same, for the others
	}
	why := h.n.broker.NotReady()
	maps.Copy(out.Checks, why)
	out.Ready = len(why) == 0
	return out
}

// ArchivePartitions tells of each partition with an archive.
func (h health) ArchivePartitions() []console.ArchivePartition {
	var out []console.ArchivePartition
	for _, s := range h.n.broker.ArchiveStatus() {
		p := console.ArchivePartition{
			Topic: s.Partition.Topic, Partition: s.Partition.Num,
			LogStart: s.LogStart, LocalStart: s.LocalStart, ArchivedEnd: s.ArchivedEnd, End: s.End,
			LocalBytes: s.LocalBytes, ArchivedBytes: s.Bytes, PendingBytes: s.PendingBytes,
			PendingSeconds: s.PendingAge.Seconds(), Reason: s.Reason,
		}
		if s.LastError != nil {
			p.LastError = s.LastError.Error()
		}
		out = append(out, p)
	}
	return out
}
