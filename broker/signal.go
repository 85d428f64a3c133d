package broker

import "sync"

// signal wakes everybody who waits for something to have changed. It says only
// "look again". The zero value is ready.
type signal struct {
	mu sync.Mutex
	c  chan struct{}
}

// wait returns a channel that the next raise closes. Take it before looking.
func (s *signal) wait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.c == nil {
		s.c = make(chan struct{})
	}
	return s.c
}

func (s *signal) raise() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.c != nil {
		close(s.c)
		s.c = nil
	}
}
