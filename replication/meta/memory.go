package meta

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Memory is a metadata store in memory, for tests and simulations: the tree that
// many sessions share.
type Memory struct {
	mu       sync.Mutex
	nodes    map[string]*memoryNode
	rev      int64
	sessions int64
	notes    *Notes

	// Fault, if set, is asked before each commit with 0 operations applied, and
	// after it with all: an error fails the commit, then with an unknown outcome.
	Fault func(ops []Op, applied bool) error
}

type memoryNode struct {
	Node
	session  int64 // 0: not ephemeral
	children map[string]bool
}

// NewMemory makes an empty tree.
func NewMemory() *Memory {
	return &Memory{nodes: map[string]*memoryNode{"": {children: make(map[string]bool)}}, notes: new(Notes)}
}

// MemorySession is one session on a Memory.
type MemorySession struct {
	tree *Memory
	id   int64
	// begun: the session has been told its gap. Until then no number counts.
	begun atomic.Bool
	lost  chan struct{}
	end   func()
}

var _ Store = (*MemorySession)(nil)

// Begin begins a session.
func (m *Memory) Begin() *MemorySession {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sessions++
	s := &MemorySession{tree: m, id: m.sessions, lost: make(chan struct{})}
	s.end = sync.OnceFunc(s.endOnce)
	return s
}

// End ends the session: its ephemeral nodes go.
func (s *MemorySession) End() { s.end() }

func (s *MemorySession) endOnce() {
	m := s.tree
	m.mu.Lock()
	defer m.mu.Unlock()
	gone := false
	for path, n := range m.nodes {
		if n.session == s.id {
			m.remove(path)
			gone = true
		}
	}
	if gone {
		m.notes.Add(Note{Brokers: true})
	}
	close(s.lost)
}

// Session identifies the session.
func (s *MemorySession) Session() (int64, <-chan struct{}) { return s.id, s.lost }

// alive is an error once ctx or the session has ended.
func (s *MemorySession) alive(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.lost:
		return ErrClosed
	default:
		return nil
	}
}

// Get reads a node.
func (s *MemorySession) Get(ctx context.Context, path string) (Node, error) {
	if err := s.alive(ctx); err != nil {
		return Node{}, err
	}
	s.tree.mu.Lock()
	defer s.tree.mu.Unlock()
	n, ok := s.tree.nodes[path]
	if !ok || path == "" {
		return Node{}, ErrNotFound
	}
	got := n.Node
	got.Value = slices.Clone(got.Value)
	return got, nil
}

// Children lists the names below path, sorted.
func (s *MemorySession) Children(ctx context.Context, path string) ([]string, error) {
	if err := s.alive(ctx); err != nil {
		return nil, err
	}
	s.tree.mu.Lock()
	defer s.tree.mu.Unlock()
	n, ok := s.tree.nodes[strings.TrimSuffix(path, "/")]
	if !ok {
		return nil, ErrNotFound
	}
	return slices.Sorted(maps.Keys(n.children)), nil
}

// Changes returns the notes after the given one.
func (s *MemorySession) Changes(ctx context.Context, after int64) ([]Note, error) {
	if err := s.alive(ctx); err != nil {
		return nil, err
	}
	if !s.begun.Swap(true) {
		after = -1
	}
	return s.tree.notes.Changes(ctx, after, s.lost)
}

// Newest is the number of the newest note.
func (s *MemorySession) Newest(ctx context.Context) (int64, error) {
	if err := s.alive(ctx); err != nil {
		return 0, err
	}
	return s.tree.notes.Last(), nil
}

// Commit applies all ops or none.
func (s *MemorySession) Commit(ctx context.Context, ops ...Op) error {
	if err := s.alive(ctx); err != nil {
		return err
	}
	note, err := Admit(ops)
	if err != nil {
		return err
	}
	m := s.tree
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.Fault != nil {
		if err := m.Fault(ops, false); err != nil {
			return err
		}
	}
	var undo []func()
	m.rev++
	for i, o := range ops {
		back, err := m.apply(o, s.id)
		if err != nil {
			for _, f := range slices.Backward(undo) {
				f()
			}
			return &Conflict{Index: i, Op: o, Err: err}
		}
		undo = append(undo, back)
	}
	if note != nil {
		m.notes.Add(*note)
	}
	if m.Fault != nil {
		return m.Fault(ops, true)
	}
	return nil
}

// apply applies one operation and returns what takes it back.
func (m *Memory) apply(o Op, session int64) (undo func(), err error) {
	n, ok := m.nodes[o.Path]
	switch o.Kind {
	case Announce:
		return func() {}, nil
	case Create, CreateEphemeral:
		if ok {
			return nil, ErrExists
		}
		if above, _ := split(o.Path); m.nodes[above] == nil {
			return nil, ErrNotFound
		}
		if o.Kind == Create {
			session = 0
		}
		m.add(o.Path, &memoryNode{
			Node:     Node{Value: slices.Clone(o.Value), Rev: m.rev},
			session:  session,
			children: make(map[string]bool),
		})
		return func() { m.remove(o.Path) }, nil
	}
	switch {
	case !ok:
		return nil, ErrNotFound
	case o.Version != AnyVersion && o.Version != n.Version:
		return nil, ErrVersion
	}
	switch o.Kind {
	case Check:
		return func() {}, nil
	case Set:
		before := n.Node
		n.Node = Node{Value: slices.Clone(o.Value), Version: n.Version + 1, Rev: m.rev}
		return func() { n.Node = before }, nil
	case Delete:
		if len(n.children) > 0 {
			return nil, ErrNotEmpty
		}
		m.remove(o.Path)
		return func() { m.add(o.Path, n) }, nil
	}
	return nil, fmt.Errorf("meta: operation of kind %d", o.Kind)
}

func (m *Memory) add(path string, n *memoryNode) {
	above, name := split(path)
	m.nodes[above].children[name] = true
	m.nodes[path] = n
}

func (m *Memory) remove(path string) {
	above, name := split(path)
	delete(m.nodes[above].children, name)
	delete(m.nodes, path)
}

// split cuts a path into that of the node above and the name.
func split(path string) (above, name string) {
	i := strings.LastIndexByte(path, '/')
	return path[:i], path[i+1:]
}
