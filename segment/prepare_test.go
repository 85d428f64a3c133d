package segment

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"testing"

	"firn/segment/batch"
	"firn/segment/vfs"
)

func TestRefusalsOfABatchKeepTheirMeaning(t *testing.T) {
	for from, want := range map[error]error{
		batch.ErrShort:        ErrCorrupt,
		batch.ErrCorrupt:      ErrCorrupt,
		batch.ErrOldFormat:    ErrUnsupportedFormat,
		batch.ErrUnknownCodec: ErrUnsupportedCodec,
		batch.ErrInvalid:      ErrInvalidRecord,
		batch.ErrTimestamp:    ErrInvalidTimestamp,
		batch.ErrTooLarge:     ErrTooLarge,
	} {
		if got := wrapBatch(fmt.Errorf("%w: why", from)); !errors.Is(got, want) || !errors.Is(got, from) {
			t.Errorf("%v: got %v, want %v", from, got, want)
		}
	}
}

// reseal gives a batch of one's own making its length and its CRC.
func reseal(b []byte) []byte {
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], castagnoli))
	return b
}

// garbled is a batch of three records, of which the last has no whole header; its
// CRC is right.
func garbled() []byte {
	b := records(3, 20, testNow)
	b[len(b)-1] = 1 << 1
	return reseal(b)
}

// misnumbered is a batch of three records, of which each has the offset of the
// first.
func misnumbered() []byte {
	b := records(3, 20, testNow)
	size := (len(b) - batch.HeaderSize) / 3
	for i := range 3 {
		delta := &b[batch.HeaderSize+i*size+3] // behind length, attributes and timestamp
		if int(*delta) != i<<1 {
			panic("the records are not what this takes apart")
		}
		*delta = 0
	}
	return reseal(b)
}

func gzipped(b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	w.Write(b[batch.HeaderSize:])
	w.Close()
	b = append(bytes.Clone(b[:batch.HeaderSize]), out.Bytes()...)
	b[22] = byte(batch.Gzip)
	return reseal(b)
}

// What its writer garbled before it took the CRC is refused (S1), unless it is
// compressed and stays so: nobody decompresses for this alone.
func TestGarbledRecordsAreRefused(t *testing.T) {
	noGzip := gzipped(records(3, 20, testNow))
	reseal(append(noGzip[:batch.HeaderSize], bytes.Repeat([]byte{7}, len(noGzip)-batch.HeaderSize)...))
	for name, c := range map[string]struct {
		b        []byte
		keep     error // with compression.type=producer
		reencode error // with another codec
	}{
		"whole":                     {records(3, 20, testNow), nil, nil},
		"whole, compressed":         {gzipped(records(3, 20, testNow)), nil, nil},
		"garbled":                   {garbled(), ErrInvalidRecord, ErrInvalidRecord},
		"garbled, then compressed":  {gzipped(garbled()), nil, ErrInvalidRecord},
		"no compressed stream":      {noGzip, nil, ErrInvalidRecord},
		"garbled behind a good one": {append(records(1, 1, testNow), garbled()...), ErrInvalidRecord, ErrInvalidRecord},
	} {
		for compression, want := range map[Compression]error{AsProduced: c.keep, Uncompressed: c.reencode, LZ4: c.reencode} {
			l := openLog(t, openDir(t, testConfig(t, vfs.NewMem())), Options{Compression: compression})
			_, err := l.Append(bytes.Clone(c.b), AppendOptions{Now: testNow})
			if !errors.Is(err, want) || errors.Is(err, ErrCorrupt) {
				t.Errorf("%s, to %d: %v, want %v", name, compression, err, want)
			}
			if end := l.Offsets().End; want != nil && end != 0 || want == nil && end != 3 {
				t.Errorf("%s, to %d: the log ends at %d", name, compression, end)
			}
		}
	}
}

// A replica takes what its leader has, and so does recovery: what is committed is
// not theirs to refuse.
func TestGarbledRecordsAreReplicatedAndRecovered(t *testing.T) {
	fsys := vfs.NewMem()
	l := openLog(t, openDir(t, testConfig(t, fsys)), Options{})
	if _, err := l.AppendReplica(garbled()); err != nil {
		t.Fatal(err)
	}
	l = openLog(t, openDir(t, quiet(fsys.CrashClone(vfs.CrashOptions{Keep: 100}))), Options{})
	if end := l.Offsets().End; end != 3 || l.Err() != nil {
		t.Errorf("after a crash the log ends at %d, %v", end, l.Err())
	}
}

// A client that numbers its records wrongly, as some do, is not refused, for Kafka
// doesn't refuse it either; the records are numbered as they stand, so that readers
// find them all.
func TestRecordsAreNumberedAsTheyStand(t *testing.T) {
	good := records(2, 20, testNow)
	sent := slices.Concat(good, misnumbered(), good, misnumbered())
	whole := slices.Concat(good, records(3, 20, testNow), good, records(3, 20, testNow))
	for _, compression := range []Compression{AsProduced, LZ4} {
		var logs [2][]byte
		for i, b := range [][]byte{sent, whole} {
			l := openLog(t, openDir(t, testConfig(t, vfs.NewMem())), Options{Compression: compression})
			if _, err := l.Append(bytes.Clone(b), AppendOptions{Now: testNow}); err != nil {
				t.Fatal(err)
			}
			r, err := l.Read(ReadRequest{MaxBytes: 1 << 16, Until: UntilCounted})
			if err != nil {
				t.Fatal(err)
			}
			if logs[i], err = bytesOf(&r.Records); err != nil {
				t.Fatal(err)
			}
		}
		if len(logs[0]) == 0 || !bytes.Equal(logs[0], logs[1]) {
			t.Errorf("to %d: the log is not what records numbered rightly make", compression)
		}
	}
}
