package broker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"firn/replication/meta"
)

// look asks something outside whether it is there, when somebody wants to know: one
// question at a time, however many want to, and none that outlives the other parts.
type look struct {
	who string
	ask func(context.Context) error
	due chan struct{}
	mu  struct {
		sync.Mutex
		done         chan struct{} // closed with the answer; nil while nothing is asked
		began, ended time.Time
		err          error
	}
}

const (
	// lookLate is after how long no answer is one.
	lookLate = 2 * time.Second
	// lookEnds is after how long a question is given up.
	lookEnds = 10 * time.Second
)

func newLook(who string, ask func(context.Context) error) *look {
	return &look{who: who, ask: ask, due: make(chan struct{}, 1)}
}

// run asks whenever it is due, until ctx ends.
func (l *look) run(ctx context.Context) error {
	for {
		select {
		case <-l.due:
		case <-ctx.Done():
			return nil
		}
		bounded, cancel := context.WithTimeout(ctx, lookEnds)
		err := l.ask(bounded)
		if err != nil && bounded.Err() != nil {
			err = fmt.Errorf("%s doesn't answer within %v", l.who, lookEnds)
		}
		cancel()
		l.mu.Lock()
		l.mu.err, l.mu.ended = err, time.Now()
		close(l.mu.done)
		l.mu.done = nil
		l.mu.Unlock()
	}
}

// start asks, unless an answer is on its way, or here and no older than fresh.
func (l *look) start(fresh time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.done == nil && time.Since(l.mu.ended) >= fresh {
		l.mu.done, l.mu.began = make(chan struct{}), time.Now()
		l.due <- struct{}{} // has room: nothing was asked
	}
}

// err is what is wrong. It waits for an answer on its way, until that is late or ctx
// ends; then the last one counts.
func (l *look) err(ctx context.Context) error {
	l.mu.Lock()
	done, late := l.mu.done, time.NewTimer(lookLate-time.Since(l.mu.began))
	l.mu.Unlock()
	defer late.Stop()
	if done != nil {
		select {
		case <-done:
		case <-late.C:
		case <-ctx.Done():
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := time.Since(l.mu.began); l.mu.done != nil && d >= lookLate && l.mu.err == nil {
		return fmt.Errorf("%s doesn't answer: asked %d s ago", l.who, int(d.Seconds()))
	}
	return l.mu.err
}

// askMeta reads a node of the metadata store. What is in a file of our own is there.
func (b *Broker) askMeta(ctx context.Context) error {
	if b.alone() {
		return nil
	}
	_, err := meta.LoadClusterID(ctx, b.cfg.Meta)
	return err
}

// askArchive reads whose archive it is.
func (b *Broker) askArchive(ctx context.Context) error {
	if b.archive == nil {
		return nil
	}
	return b.archive.Owner(ctx)
}
