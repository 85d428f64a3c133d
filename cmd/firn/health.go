package main

import (
	"firn/broker/console"
)

// health answers the console from the broker.
type health struct{ n *node }

func (h health) Health() console.Health {
	out := console.Health{Checks: map[string]string{"metadata": "ok", "logs": "ok"}}
	select {
	case <-h.n.broker.Ready():
		out.Ready = true
	default:
		out.Checks["logs"] = "recovering, or waiting for leadership"
	}
	return out
}

func (h health) ArchivePartitions() []console.ArchivePartition { return nil }
