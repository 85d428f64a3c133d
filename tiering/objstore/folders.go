package objstore

import (
	"context"
	"slices"
	"strings"
)

// Foldered is a Store that can tell the directories below a prefix without
// listing what is in them: a million objects cost as little as one.
type Foldered interface {
	// Folders returns the elements, in order, that follow prefix in keys and
	// are followed by more. prefix is empty or ends in a slash.
	Folders(ctx context.Context, prefix string) ([]string, error)
}

// Folders is s.Folders where s has it, else it lists everything.
func Folders(ctx context.Context, s Store, prefix string) ([]string, error) {
	if f, ok := s.(Foldered); ok {
		return f.Folders(ctx, prefix)
	}
	var names []string
	err := s.List(ctx, prefix, func(o Object) error {
		if name, _, ok := strings.Cut(strings.TrimPrefix(o.Key, prefix), "/"); ok && (len(names) == 0 || names[len(names)-1] != name) {
			names = append(names, name)
		}
		return nil
	})
	// "a-b/" sorts before "a/", but the element "a" before "a-b".
	slices.Sort(names)
	return slices.Compact(names), err
}
