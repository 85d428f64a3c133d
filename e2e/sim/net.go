package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

var (
	errRefused = errors.New("sim: connection refused")
	errTimeout = errors.New("sim: no answer")
)

// packet is how long a packet takes, most of the time.
var packet = between(50*time.Microsecond, 3*time.Millisecond)

// call carries a request to a machine, where serve answers it in a goroutine of
// that process, and the answer back. from is nil for a client. Packets are lost
// where the way is cut, and now and then where the network is faulty; different
// calls overtake each other.
func call[T any](ctx context.Context, w *world, from *process, who string, to *machine, what string, patience time.Duration, serve func(context.Context, *process) T) (T, error) {
	type answer struct {
		v   T
		err error
	}
	key := fmt.Sprintf("%s to %v %s", who, to, what)
	result := make(chan answer, 1)
	back := func(a answer) {
		w.s.post(&event{
			key:   key + " answered",
			delay: w.packet(),
			held:  func() bool { return from != nil && from.m.paused && !from.dead() },
			fire: func() {
				if from == nil || !to.cut[from.m.id] {
					result <- a
				}
			},
		})
	}
	w.s.post(&event{
		key:   key,
		delay: w.packet(),
		held:  func() bool { return to.paused },
		fire: func() {
			if from != nil && from.m.cut[to.id] {
				return
			}
			p := to.proc
			if p == nil || p.dead() {
				back(answer{err: errRefused})
				return
			}
			p.run(func() {
				v := serve(p.ctx, p)
				if !p.dead() {
					back(answer{v: v})
				}
			})
		},
	})
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errTimeout)
	defer cancel()
	select {
	case a := <-result:
		return a.v, a.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

// packet draws the time that one packet takes.
func (w *world) packet() func(*rand.Rand) time.Duration {
	return func(r *rand.Rand) time.Duration {
		if w.jitter && r.IntN(20) == 0 {
			return between(20*time.Millisecond, 900*time.Millisecond)(r)
		}
		return packet(r)
	}
}
