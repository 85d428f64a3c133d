package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// counts says how much of what has happened.
type counts struct {
	mu  sync.Mutex
	all map[string]int
}

func newCounts() *counts { return &counts{all: map[string]int{}} }

func (c *counts) add(what string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all[what] += n
}

func (c *counts) of(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all[what]
}

// merge adds all of d's.
func (c *counts) merge(d *counts) {
	for what, n := range d.all {
		c.add(what, n)
	}
}

func (c *counts) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(c.all)) {
		parts = append(parts, fmt.Sprintf("%s %d", what, c.all[what]))
	}
	return strings.Join(parts, ", ")
}
