package broker

import (
	"context"
	"fmt"
	"time"

	"firn/replication/meta"
	"firn/segment"
)

const (
	// lookAtDisk is how often the disk is looked at.
	lookAtDisk = time.Second
	// fullAfter is how long it is short of space before others are to lead, roomAfter
	// how long it has room before this broker may lead again: both outlast a moment in
	// which archived segments go to make space.
	fullAfter = 5 * time.Second
	roomAfter = 10 * time.Second
)

// watchDisk has others lead while this broker's disk is full: it takes no records
// then, and another replica may have room.
//
//	full for long ─▶ listed ─▶ the controller elects others in sync; this
//	                           replica stays in the ISR and follows
//	room for long ─▶ taken off ─▶ it may lead again, as preferred leader above all
//
// A broker that is alone leads on: nobody else could.
func (b *Broker) watchDisk(ctx context.Context) {
	if b.alone() {
		return
	}
	again := time.NewTicker(lookAtDisk)
	defer again.Stop()
	var f segment.Fullness
	told := false
	for {
		s := b.replicas.dir.Space()
		f = f.Look(time.Now(), s, b.diskPatience)
		listed, err := b.listFull(ctx, f.Full)
		switch {
		case err != nil && ctx.Err() == nil:
			b.log.Warn("the metadata store can't be told whether the disk is full; will retry", "full", f.Full, "err", err)
		case !listed || told == f.Full:
		case f.Full:
			b.log.Warn("the disk is full: others are to lead what is led here, as far as they are in sync and have room",
				"dir", b.cfg.LogDir, "free_bytes", s.Free, "reserve_bytes", s.Reserve, "until_free_bytes", s.Room())
			told = true
		default:
			b.log.Info("the disk has room again: this broker may lead", "dir", b.cfg.LogDir, "free_bytes", s.Free)
			told = false
		}
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
	}
}

// listFull has the list of what this broker gives up say whether its disk is full, and
// says whether it does.
func (b *Broker) listFull(ctx context.Context, full bool) (listed bool, err error) {
	m := b.registration()
	if m == nil {
		return false, nil
	}
	if b.topics.Load().offline[b.cfg.NodeID].IsFull(m.Epoch) == full {
		return true, nil
	}
	err = b.listOffline(ctx, func(o *meta.Offline) bool {
		if o.IsFull(m.Epoch) == full {
			return false
		}
		o.Full = 0
		if full {
			o.Full = m.Epoch
		}
		return true
	})
	return err == nil, err
}

// shortOfSpace says, for an operator, how a disk stands that is short of space, and
// what follows; "" if it isn't.
func (b *Broker) shortOfSpace() string {
	s := b.replicas.dir.Space()
	full := b.topics.Load().isFull(b.cfg.NodeID)
	if !s.Low && !full {
		return ""
	}
	how, what := "below its reserve", "produce requests are refused"
	if full {
		what = fmt.Sprintf("others lead what they can for this broker, until %d bytes are free for a while", s.Room())
		if s.Low {
			what += "; where it leads still, produce requests are refused"
		} else {
			how = "short of space"
		}
	}
	return fmt.Sprintf("the disk of %s is %s (%d bytes free, %d to be kept): %s", b.cfg.LogDir, how, s.Free, s.Reserve, what)
}
