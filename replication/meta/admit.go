package meta

import "fmt"

// Admit checks a commit against the limits of every store, and finds its note,
// nil if it has none. Implementations call it first.
func Admit(ops []Op) (*Note, error) {
	if len(ops) > MaxOps {
		return nil, fmt.Errorf("%w: %d operations", ErrTooLarge, len(ops))
	}
	var note *Note
	bytes := 0
	for _, o := range ops {
		bytes += len(o.Path) + len(o.Value)
		if o.Kind != Announce {
			if err := CheckPath(o.Path); err != nil {
				return nil, err
			}
			continue
		}
		if note != nil {
			return nil, fmt.Errorf("%w: two notes", ErrTooLarge)
		}
		n, err := DecodeNote(o.Value)
		if err != nil {
			return nil, err
		}
		note = &n
	}
	if bytes > MaxBytes {
		return nil, fmt.Errorf("%w: %d bytes", ErrTooLarge, bytes)
	}
	return note, nil
}
