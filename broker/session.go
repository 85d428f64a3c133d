package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"firn/replication"
	"firn/replication/meta"
)

// membership is this broker in one registration, which lives as long as a session
// of the metadata store does.
type membership struct {
	meta.Registration
	// lost is closed when the session has ended.
	lost <-chan struct{}
}

// registration is the current one; nil before the first, and between the end of
// a session and the next.
func (b *Broker) registration() *meta.Registration {
	if m := b.member.Load(); m != nil {
		return &m.Registration
	}
	return nil
}

// takePart keeps this broker a member of its cluster. What it is told, leads and
// decides, it does in one session after the other (Z1).
//
//	session ends ─▶ the store answers in another ─▶ nothing is led any more
//	     ▲                                                     ▼
//	follow, renew the lease, campaign ◀── read everything ◀── register, in a
//	                                      and take roles      new broker epoch
//
// As long as no server answers, nobody can say whether the session goes on: what
// is led is led on, as far as the lease, and past it the followers, allow (B7).
//
// It fails when the metadata store isn't the one that this broker knows, and when
// another process has registered as this broker.
func (b *Broker) takePart(ctx context.Context) error {
	for {
		if m := b.member.Load(); m != nil {
			if err := b.live(ctx, m); err != nil {
				return err
			}
			b.awaitStore(ctx)
			if ctx.Err() != nil {
				return nil
			}
			b.log.Warn("in a new session of the metadata store this broker leads nothing until it has registered again", "broker_epoch", m.Epoch)
			b.stepDown()
		}
		for ctx.Err() == nil && b.member.Load() == nil {
			err := b.rejoin(ctx)
			if final(err) {
				return err
			}
			if err != nil && ctx.Err() == nil {
				b.log.Warn("this broker is not registered and leads nothing; will retry", "err", err)
				sleep(ctx, rejoinRetry)
			}
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

// rejoinRetry is how long a broker waits before it tries again to register.
const rejoinRetry = 500 * time.Millisecond

// final: to try again would change nothing, and to go on might destroy something.
func final(err error) bool {
	for _, f := range []error{meta.ErrRolledBack, meta.ErrDuplicateBroker, errOtherCluster, errSuperseded} {
		if errors.Is(err, f) {
			return true
		}
	}
	return false
}

// live does what a member does until its session ends, or ctx. It fails if another
// process takes the registration over.
func (b *Broker) live(ctx context.Context, m *membership) (err error) {
	session, end := context.WithCancel(ctx)
	defer end()
	var parts sync.WaitGroup
	superseded := make(chan error, 1)
	parts.Go(func() { b.image.run(session) })
	parts.Go(func() {
		if err := b.keepLease(session, m.Registration); err != nil {
			superseded <- err
		}
	})
	parts.Go(func() { b.runController(session, m.Registration) })
	select {
	case <-ctx.Done():
	case err = <-superseded:
	case <-m.lost:
		b.log.Warn("the session with the metadata store has ended", "broker_epoch", m.Epoch)
	}
	end()
	parts.Wait()
	return err
}

// errSuperseded: our registration was written by somebody else. Each incarnation
// of a broker does that, and no other can live beside us but on a copy of our
// log directory, whose lock we hold.
var errSuperseded = errors.New("broker: another process has registered as this broker")

// superseded makes it of a refused write, if that is what refused it.
func superseded(err error, self meta.Registration) error {
	c := (*meta.Conflict)(nil)
	if !errors.As(err, &c) || c.Op.Path != meta.RegistrationPath(self.ID) || !errors.Is(err, meta.ErrVersion) {
		return nil
	}
	return fmt.Errorf("%w, %d, with the same directory id: it runs on a copy of this log directory. Stop one of them, and give each log directory to one broker", errSuperseded, self.ID)
}

// awaitStore waits until the store answers: in another session, now.
func (b *Broker) awaitStore(ctx context.Context) {
	for ctx.Err() == nil {
		_, err := meta.LoadClusterID(ctx, b.cfg.Meta)
		if err == nil || errors.Is(err, meta.ErrNotFound) {
			return
		}
		sleep(ctx, awaitRetry)
	}
}

// awaitRetry is how long a broker waits before it asks again whether the store is there.
const awaitRetry = 50 * time.Millisecond

// rejoin registers again and takes part as if it had just started, but that the
// logs are open.
func (b *Broker) rejoin(ctx context.Context) error {
	id, err := meta.LoadClusterID(ctx, b.cfg.Meta)
	if errors.Is(err, meta.ErrNotFound) || err == nil && id != b.clusterID {
		return fmt.Errorf("%w: this broker's is %s, the metadata store's %q. The store was emptied or replaced; nothing is deleted here. "+
			"Restore the store, or start the broker with an empty log directory", errOtherCluster, b.clusterID, id)
	}
	if err != nil {
		return err
	}
	if err := b.register(ctx, false); err != nil {
		return err
	}
	if err := b.image.readAll(ctx); err != nil {
		b.stepDown()
		return err
	}
	if err := b.unlist(ctx); err != nil {
		b.log.Warn("what is back in service is still listed as given up", "err", err)
	}
	return nil
}

// stepDown ends what was led under a registration (R6).
func (b *Broker) stepDown() {
	b.lease.End()
	b.member.Store(nil)
	b.replicas.resignAll()
}

// errOtherCluster: the metadata store is another cluster's.
var errOtherCluster = errors.New("broker: the metadata store is not this cluster's")

// keepLease renews the lease until ctx ends.
func (b *Broker) keepLease(ctx context.Context, self meta.Registration) error {
	if b.lease == nil {
		return nil
	}
	held := true
	for {
		t := replication.LeaseTimes(b.sessionTimeout())
		sent := time.Now()
		err := b.renew(ctx, self, t)
		switch {
		case ctx.Err() != nil:
			return nil
		case superseded(err, self) != nil:
			return superseded(err, self)
		case err == nil && !held:
			b.log.Info("the metadata store can be written again")
		case err != nil && held:
			b.log.Warn("the metadata store can't be written: past the lease, partitions are served only while all in sync follow", "lease", t.Length, "err", err)
		}
		held = err == nil
		wait := t.Renewal - time.Since(sent)
		if err != nil {
			wait = max(wait, t.Renewal/8)
		}
		if !sleep(ctx, max(wait, 0)) {
			return nil
		}
	}
}

// renew renews the lease once.
func (b *Broker) renew(ctx context.Context, self meta.Registration, t replication.Lifetimes) error {
	if b.lease == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, t.Renewal)
	defer cancel()
	sent := time.Now()
	if err := meta.RenewLease(ctx, b.cfg.Meta, self); err != nil {
		return err
	}
	if m := b.member.Load(); m == nil || m.Epoch != self.Epoch {
		return meta.ErrClosed // the session is over: it is known by now
	}
	b.lease.Renewed(sent, t.Length)
	return nil
}

// alone: this broker's metadata is its own, and no other can ever join it.
func (b *Broker) alone() bool { return b.lease == nil }

// sessionTimeout is how long the store waits for us before it takes us for dead.
func (b *Broker) sessionTimeout() time.Duration {
	if s, ok := b.cfg.Meta.(meta.Expiring); ok {
		if d := s.SessionTimeout(); d > 0 {
			return d
		}
	}
	return b.cfg.Settings.Millis("zookeeper.session.timeout.ms")
}
