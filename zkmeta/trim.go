package zkmeta

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"firn/replication/meta"
)

// lastSequence ends a generation: ZooKeeper's counter has 31 bits, and beyond them
// it goes on below zero.
const lastSequence = 1 << 30

// TrimNotes deletes all notes but the newest, and what is left of generations
// before the current one.
func (s *Store) TrimNotes(ctx context.Context, fence meta.Op, keep int) error {
	return s.trim(ctx, []meta.Op{fence}, keep, lastSequence)
}

func (s *Store) trim(ctx context.Context, fence []meta.Op, keep int, last int64) error {
	n, err := s.Get(ctx, changesPath)
	if err != nil {
		return err
	}
	now, err := strconv.ParseInt(string(n.Value), 10, 64)
	if err != nil {
		return fmt.Errorf("zkmeta: %s: generation %.20q", changesPath, n.Value)
	}
	generations, err := s.Children(ctx, changesPath)
	if err != nil {
		return err
	}
	for _, name := range generations {
		dir := changesPath + "/" + name
		notes, err := s.Children(ctx, dir)
		if err != nil {
			return err
		}
		if dir == generationPath(now) {
			if newest := len(notes) - 1; newest >= 0 {
				if seq, err := strconv.ParseInt(notes[newest], 10, 64); err != nil || seq >= last {
					return s.nextGeneration(ctx, now, n.Version, fence)
				}
			}
			notes = notes[:max(0, len(notes)-keep)]
		}
		if err := s.deleteAll(ctx, dir, notes, fence); err != nil {
			return err
		}
		if g, err := strconv.ParseInt(name, 10, 64); err == nil && g < now {
			if err := s.deleteAll(ctx, changesPath, []string{name}, fence); err != nil {
				return err
			}
		}
	}
	return nil
}

// nextGeneration ends the current generation: for all who follow it, a gap.
func (s *Store) nextGeneration(ctx context.Context, now int64, version int32, fence []meta.Op) error {
	next := strconv.FormatInt(now+1, 10)
	return s.Commit(ctx, append(slices.Clone(fence),
		meta.Op{Kind: meta.Create, Path: generationPath(now + 1)},
		meta.Op{Kind: meta.Set, Path: changesPath, Value: []byte(next), Version: version})...)
}

// deleteAll deletes nodes below dir, under a fence. That some are gone already is
// as good: whoever else trims them goes by the same rule.
func (s *Store) deleteAll(ctx context.Context, dir string, names []string, fence []meta.Op) error {
	for len(names) > 0 {
		n := min(len(names), meta.MaxOps-len(fence))
		ops := slices.Clone(fence)
		for _, name := range names[:n] {
			ops = append(ops, meta.Op{Kind: meta.Delete, Path: dir + "/" + name, Version: meta.AnyVersion})
		}
		err := s.Commit(ctx, ops...)
		refused := (*meta.Conflict)(nil)
		if errors.As(err, &refused) && refused.Index >= len(fence) && errors.Is(err, meta.ErrNotFound) {
			gone := strings.TrimPrefix(refused.Op.Path, dir+"/")
			names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == gone })
			continue
		}
		if err != nil {
			return err
		}
		names = names[n:]
	}
	return nil
}
