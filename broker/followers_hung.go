package broker

import (
	"context"
	"time"

	"firn/replication"
)

// A write that doesn't return, on a disk that is dying or away, would hold up all
// that are followed by the same source. So somebody watches: the others get another
// source, and the one that hangs keeps its own until the write returns.
//
//	enter ─▶ write … hangs ─▶ watch: alone ─▶ others: next source
//	                 returns ─▶ leave: its source ends, and it is followed again

// writing is how far a source has come in an answer.
type writing struct {
	// at is the replica whose log it changes, nil if it changes none; turn counts
	// them.
	at   *replication.Partition
	turn int64
	// alone: the others have been taken from it.
	alone bool
}

// enter notes that p's log is about to be changed. false: it must not be, for
// another source has p by now.
func (s *source) enter(p *replication.Partition) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.alone {
		return false
	}
	s.mu.at, s.mu.turn = p, s.mu.turn+1
	return true
}

// leave notes that no log is being changed. false: this source has nobody left, but
// who kept it, who is followed by another from now on.
func (s *source) leave() bool {
	s.mu.Lock()
	p, alone := s.mu.at, s.mu.alone
	s.mu.at = nil
	s.mu.Unlock()
	if alone {
		s.fs.returned(p)
	}
	return !alone
}

// hangs takes the others from a source that is where it was at the last look, and
// says with whom it stays.
func (s *source) hangs(last int64) (p *replication.Partition, turn int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.at == nil || s.mu.turn != last {
		return nil, s.mu.turn
	}
	s.mu.alone = true
	return s.mu.at, s.mu.turn
}

// maxHung bounds the sources that are left to hang: each holds an answer in memory.
// If more hang, it is the disk as a whole, and nobody would get further elsewhere.
const maxHung = 4

// watch looks for sources that hang until ctx ends: often enough that the others are
// followed again before their leaders take them for lagging.
func (fs *followers) watch(ctx context.Context) {
	turns := map[*source]int64{}
	for sleep(ctx, max(fs.b.settings().Millis("replica.lag.time.max.ms")/4, time.Millisecond)) {
		fs.mu.Lock()
		before := turns
		turns = make(map[*source]int64, len(fs.mu.sources))
		for key, s := range fs.mu.sources {
			last, seen := before[s]
			if !seen || len(fs.mu.hung) >= maxHung {
				last = -1
			}
			p, turn := s.hangs(last)
			turns[s] = turn
			if p != nil {
				delete(fs.mu.sources, key)
				fs.replaceLocked(s, p)
			}
		}
		fs.mu.Unlock()
	}
}

// replaceLocked has others than p, with which s hangs, followed by another source.
func (fs *followers) replaceLocked(s *source, p *replication.Partition) {
	fs.log.Error("a write to a replica's log doesn't return: the replica isn't followed until it does; others go on without it",
		"topic", p.Topic(), "partition", p.Index(), "source", s.key.broker)
	fs.mu.hung[p] = s
	var others []*replication.Partition
	for q, of := range fs.mu.of {
		if of == s {
			delete(fs.mu.of, q)
			others = append(others, q)
		}
	}
	for _, q := range others {
		fs.assignLocked(q) // but p
	}
}

// returned: the write to p's log has.
func (fs *followers) returned(p *replication.Partition) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.log.Info("a write to a replica's log has returned: the replica is followed again", "topic", p.Topic(), "partition", p.Index())
	delete(fs.mu.hung, p)
	fs.assignLocked(p)
}
