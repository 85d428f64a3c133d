package broker

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// producerIDs hands out producer ids from blocks that the metadata store gives
// to this broker alone. It has one from its start on, and another in reserve, so that
// producers can start while the store is away.
type producerIDs struct {
	// allocate gets a block [first, below) from the store.
	allocate func(ctx context.Context) (first, below int64, err error)
	log      *slog.Logger

	// low wakes run: there is no spare block.
	low chan struct{}
	// ready is closed and replaced whenever a block has come.
	mu struct {
		sync.Mutex
		block, spare idBlock
		ready        chan struct{}
	}
}

type idBlock struct{ next, below int64 }

func (b idBlock) empty() bool { return b.next >= b.below }

func newProducerIDs(log *slog.Logger, allocate func(context.Context) (int64, int64, error)) *producerIDs {
	p := &producerIDs{allocate: allocate, log: log, low: make(chan struct{}, 1)}
	p.mu.ready = make(chan struct{})
	return p
}

// next returns an id that nobody else gets, waiting for a block if there is none.
func (p *producerIDs) next(ctx context.Context) (int64, error) {
	for {
		p.mu.Lock()
		if p.mu.block.empty() {
			p.mu.block, p.mu.spare = p.mu.spare, idBlock{}
			p.wake()
		}
		if !p.mu.block.empty() {
			id := p.mu.block.next
			p.mu.block.next++
			p.mu.Unlock()
			return id, nil
		}
		ready := p.mu.ready
		p.mu.Unlock()
		select {
		case <-ready:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

func (p *producerIDs) wake() {
	select {
	case p.low <- struct{}{}:
	default:
	}
}

// run fetches a block whenever the spare one is missing, the first two at once.
func (p *producerIDs) run(ctx context.Context) error {
	p.wake()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.low:
		}
		first, below, err := p.allocate(ctx)
		if err != nil {
			if ctx.Err() == nil {
				p.log.Warn("no block of producer ids from the metadata store; will retry", "err", err)
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(time.Second):
				p.wake()
			}
			continue
		}
		p.mu.Lock()
		p.mu.spare = idBlock{first, below}
		if p.mu.block.empty() {
			p.mu.block, p.mu.spare = p.mu.spare, idBlock{}
			p.wake() // and one in reserve
		}
		close(p.mu.ready)
		p.mu.ready = make(chan struct{})
		p.mu.Unlock()
	}
}
