package main

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"firn/segment/batch"
)

// TestDecodable: a batch that can't be decoded is told once it is the next to be
// read, and not before.
func TestDecodable(t *testing.T) {
	fiveAt := func(base int64) []byte {
		b := batch.NewBuilder(batch.Spec{BaseOffset: base})
		for range 5 {
			b.Add(1, nil, []byte("v"))
		}
		out, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	good, after := fiveAt(10), fiveAt(20)
	bad := bytes.Clone(fiveAt(15))
	bad[len(bad)-1]++
	for name, c := range map[string]struct {
		b           []byte
		at          int64
		first, next int64
		err         error
	}{
		"nothing":            {nil, 7, 7, 7, nil},
		"good":               {good, 12, 12, 15, nil},
		"good, and a gap":    {slices.Concat(good, after), 10, 10, 25, nil},
		"cut off":            {slices.Concat(good, after[:70]), 10, 10, 15, nil},
		"bad":                {slices.Concat(bad, after), 17, 15, 20, batch.ErrCorrupt},
		"bad behind a good":  {slices.Concat(good, bad, after), 10, 10, 15, nil},
		"no batch":           {bytes.Repeat([]byte{9}, 100), 7, 7, 8, batch.ErrCorrupt},
		"no batch, but good": {append(bytes.Clone(good), bytes.Repeat([]byte{9}, 100)...), 10, 10, 15, nil},
	} {
		first, next, err := decodable(c.b, c.at)
		if first != c.first || next != c.next || !errors.Is(err, c.err) {
			t.Errorf("%s: %d, %d, %v; want %d, %d, %v", name, first, next, err, c.first, c.next, c.err)
		}
	}
}
