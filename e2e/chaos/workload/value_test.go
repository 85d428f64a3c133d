package workload

import "testing"

func TestValueTellsItsDamageAndItsPartition(t *testing.T) {
	for _, size := range []int{0, 60, 4000} {
		b := encode(3, "i1-7", 42, size)
		if len(b) < size {
			t.Errorf("%d bytes, want at least %d", len(b), size)
		}
		if who, n, ok := Decode(3, b); who != "i1-7" || n != 42 || !ok {
			t.Errorf("Decode = %q, %d, %t", who, n, ok)
		}
		if _, _, ok := Decode(2, b); ok {
			t.Error("it passes for a record of another partition")
		}
		for i := range b {
			b[i] ^= 4
			if _, _, ok := Decode(3, b); ok {
				t.Errorf("a flipped bit at %d of %d is not seen", i, len(b))
			}
			b[i] ^= 4
		}
	}
	if _, _, ok := Decode(0, nil); ok {
		t.Error("nothing is a value")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(int32(3), encode(3, "i1", 2, 80))
	f.Add(int32(0), []byte("0/i1/2/abcd"))
	f.Fuzz(func(t *testing.T, p int32, b []byte) { Decode(p, b) })
}
