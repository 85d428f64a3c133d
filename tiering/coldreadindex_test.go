package tiering

import "testing"

// A seek reads up to where its batch can end, in one go: with batches larger than
// a block it would pay a round trip for each block otherwise.
func TestReachCoversTheBatchThatHoldsAnOffset(t *testing.T) {
	const mib = 1 << 20
	ix := &coldIndex{marks: []coldMark{{0, 0}, {99, mib}, {199, 2 * mib}, {299, 3 * mib}}}
	ix.Size = 4 * mib
	for offset, want := range map[int64]int64{0: 2 * mib, 98: 2 * mib, 99: 3 * mib, 150: 3 * mib, 199: 4 * mib, 299: 4 * mib, 1000: 4 * mib} {
		if got := ix.reach(offset); got != want || got <= ix.position(offset) {
			t.Errorf("offset %d reaches to %d from %d, want %d", offset, got, ix.position(offset), want)
		}
	}
	ix = &coldIndex{exact: true, marks: []coldMark{{0, 0}, {100, mib}, {200, 2 * mib}, {300, 3 * mib}}}
	ix.Size = 4 * mib
	for offset, from := range map[int64]int64{0: 0, 99: 0, 100: mib, 199: mib, 200: 2 * mib, 1000: 3 * mib} {
		if got := ix.reach(offset); got != from+mib || ix.position(offset) != from {
			t.Errorf("exact marks: offset %d from %d to %d, want from %d", offset, ix.position(offset), got, from)
		}
	}
}
