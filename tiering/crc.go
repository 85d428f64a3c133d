package tiering

import "hash/crc32"

// joinSums is the checksum of bytes with checksum a and after them b, whose own is
// sum. For a b of UnitSize it does not look at it again.
func joinSums(a, sum uint32, b []byte) uint32 {
	if len(b) != UnitSize {
		return crc32.Update(a, castagnoli, b)
	}
	return unitZeros.of(a) ^ sum
}

// crcMatrix is a linear map of checksums: what bit i becomes, for each i. A
// checksum is linear in what it sums up, so that zeros behind it are such a map.
type crcMatrix [32]uint32

func (m *crcMatrix) of(c uint32) (to uint32) {
	for i := 0; c != 0; i, c = i+1, c>>1 {
		if c&1 != 0 {
			to ^= m[i]
		}
	}
	return to
}

// unitZeros is what UnitSize zeros do.
var unitZeros = func() (m crcMatrix) {
	m[0] = crc32.Castagnoli // one bit: bits are reflected
	for i := 1; i < len(m); i++ {
		m[i] = 1 << (i - 1)
	}
	for bits := 1; bits < 8*UnitSize; bits *= 2 {
		var twice crcMatrix
		for i := range m {
			twice[i] = m.of(m[i])
		}
		m = twice
	}
	return m
}()
