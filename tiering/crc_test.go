package tiering

import "testing"

func TestSumsOfUnitsMakeThoseOfBlocksAndOfTheFile(t *testing.T) {
	rng := testRNG(50)
	for _, size := range []int{1, UnitSize - 1, UnitSize, UnitSize + 1, BlockSize, 2*BlockSize + 3*UnitSize + 7} {
		b := make([]byte, size)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		var s scanned
		for at := 0; at < size; at += BlockSize {
			s.sum(b[at:min(at+BlockSize, size)])
		}
		for i, sum := range s.Blocks {
			if want := Checksum(b[i*BlockSize : min((i+1)*BlockSize, size)]); sum != want {
				t.Errorf("%d bytes: block %d has %08x, want %08x", size, i, sum, want)
			}
		}
		for i, sum := range s.Units {
			if want := Checksum(b[i*UnitSize : min((i+1)*UnitSize, size)]); sum != want {
				t.Errorf("%d bytes: unit %d has %08x, want %08x", size, i, sum, want)
			}
		}
		if s.CRC != Checksum(b) {
			t.Errorf("%d bytes: %08x, want %08x", size, s.CRC, Checksum(b))
		}
	}
}
