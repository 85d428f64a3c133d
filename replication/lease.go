package replication

import (
	"sync/atomic"
	"time"

	"firn/replication/meta"
)

// Lease says how long a broker may be sure, without asking, that nobody has been
// elected in its place. It is the one safety argument that uses a clock, and that
// is the monotonic one. All partitions of a broker share it; a nil Lease is that
// of a broker which nobody can replace, and always holds.
//
//	a write to our own node, committed
//	sent ─────────────────────── sent+session: the store may take us for dead
//	 └───────── length ────────┘            length = session − renewal − one tick
//
// Past it a leader answers only what the others of its partition vouch for:
//
//	acks=all            the high watermark vouches: a rival is one of our ISR, and
//	                    follows us no more, so that it stands still
//	everything else     while each other member of committed ISR ∪ joining ∪
//	                    eligible has proven within length that it knows of no
//	                    later epoch; see Partition.Proven
//	nobody else         while unclean elections are off: nobody else may lead
type Lease struct {
	began time.Time
	// until and length are in nanoseconds, until since began.
	until, length atomic.Int64
}

// NewLease makes a lease that isn't held yet.
func NewLease() *Lease { return &Lease{began: time.Now()} }

// Renewed says that a write to our own node, sent then, has been committed. It is
// good for length from its sending; so is what a follower proves.
func (l *Lease) Renewed(sent time.Time, length time.Duration) {
	l.length.Store(int64(length))
	until := l.at(sent) + int64(length)
	for {
		now := l.until.Load()
		if until <= now || l.until.CompareAndSwap(now, until) {
			return
		}
	}
}

// End ends the lease: the store has told that the session is over.
func (l *Lease) End() {
	if l != nil {
		l.until.Store(0)
	}
}

// Held: nobody can have been elected in our place.
func (l *Lease) Held() bool { return l == nil || l.now() < l.until.Load() }

// now is the time since the lease was made. It never goes back, and goes on while
// the process is stopped.
func (l *Lease) now() int64 { return int64(time.Since(l.began)) }

func (l *Lease) at(t time.Time) int64 { return int64(t.Sub(l.began)) }

// proof is when a member is known to have followed us.
type proof struct {
	meta.Member
	at int64 // by the lease's clock
}

// forever is later than any time of a lease.
const forever = 1<<63 - 1

// vouchedUntil is until when the others of a leadership vouch for it: the oldest
// of their proofs decides, and one that has given none vouches for nothing. With no
// others the leader vouches for itself where nobody else may be elected.
func vouchedUntil(others []meta.Member, proofs []proof, length int64, unclean bool) int64 {
	if len(others) == 0 {
		if unclean {
			return 0
		}
		return forever
	}
	until := int64(forever)
	for _, m := range others {
		at := int64(-1)
		for _, p := range proofs {
			if p.Member == m {
				at = p.at
			}
		}
		if at < 0 {
			return 0
		}
		until = min(until, at+length)
	}
	return until
}

// Proven says that m's Fetch follows our answer to its last, which we sent at
// answered, both in this leader epoch: so m knew of no later one when it got that
// answer. The first Fetch of an epoch follows none, and proves nothing.
func (p *Partition) Proven(m meta.Member, epoch int32, answered time.Time) {
	if p.lease == nil || answered.IsZero() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.tracker == nil || p.role.Load().epoch != epoch {
		return
	}
	at := max(p.lease.at(answered), 0)
	for i := range p.mu.proofs {
		if o := &p.mu.proofs[i]; o.ID == m.ID {
			switch {
			case o.Epoch < m.Epoch:
				*o = proof{m, at}
			case o.Epoch == m.Epoch:
				o.at = max(o.at, at)
			}
			p.vouchLocked()
			return
		}
	}
	p.mu.proofs = append(p.mu.proofs, proof{m, at})
	p.vouchLocked()
}

// vouchLocked reckons anew until when the others vouch for this leadership.
func (p *Partition) vouchLocked() {
	if p.lease == nil {
		return
	}
	until := int64(0)
	if p.mu.tracker != nil {
		p.mu.others = p.mu.tracker.Others(p.mu.others[:0])
		until = vouchedUntil(p.mu.others, p.mu.proofs, p.lease.length.Load(), p.mu.rules.Unclean)
	}
	p.vouched.Store(until)
}

// surely: what this leader says is so, for nobody else can lead.
func (p *Partition) surely() bool {
	if p.lease == nil {
		return true
	}
	now := p.lease.now()
	return now < p.lease.until.Load() || now < p.vouched.Load()
}

// Answers: this replica leads, and may say so.
func (p *Partition) Answers() bool { return p.role.Load().leading && p.surely() }

// Lifetimes are how a lease is kept on a store with sessions of some length.
type Lifetimes struct {
	// Renewal is how often it is renewed, Length how long a renewal is good for.
	Renewal, Length time.Duration
}

// longestTick is ZooKeeper's own tick, by which it rounds the ends of sessions.
const longestTick = 2 * time.Second

// LeaseTimes are those of a session: renewed four times in it, and good for what
// is left after a renewal that failed and a tick. The tick isn't known: it is the
// servers', at most half a session.
func LeaseTimes(session time.Duration) Lifetimes {
	renewal := session / 4
	return Lifetimes{Renewal: renewal, Length: session - renewal - min(session/4, longestTick)}
}
