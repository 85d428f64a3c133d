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

// A client sends one batch at a time, as to Kafka; of more, nothing is written. The
// broker's coordinators and replicas append as many as they have.
func TestAClientAppendsOneBatchAtATime(t *testing.T) {
	one := func() []byte { return records(2, 20, testNow) }
	two := slices.Concat(one(), one())
	for name, b := range map[string][]byte{
		"two": two, "a torn one behind": two[:len(two)-1], "a byte behind": append(one(), 0), "misnumbered behind": append(one(), misnumbered()...),
		"one misnumbered, one behind": append(misnumbered(), one()...), "one compressed, one behind": append(gzipped(one()), one()...),
	} {
		l := openLog(t, openDir(t, testConfig(t, vfs.NewMem())), Options{})
		if _, err := l.Append(bytes.Clone(b), AppendOptions{Now: testNow}); !errors.Is(err, ErrInvalidRecord) {
			t.Errorf("%s: %v, want %v", name, err, ErrInvalidRecord)
		}
		wantOffsets(t, l, 0, 0)
	}
	l := openLog(t, openDir(t, testConfig(t, vfs.NewMem())), Options{})
	if a, err := l.Append(bytes.Clone(two), AppendOptions{Now: testNow, Origin: OriginCoordinator}); err != nil || a.Last != 3 {
		t.Errorf("a coordinator's: %+v, %v", a, err)
	}
	leaders, _, _ := batch.Next(slices.Clone(two))
	leaders.SetBaseOffset(4)
	second := batch.Batch(one())
	second.SetBaseOffset(6)
	if a, err := l.AppendReplica(append(leaders, second...)); err != nil || a.Last != 7 {
		t.Errorf("a leader's: %+v, %v", a, err)
	}
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
		"whole":                    {records(3, 20, testNow), nil, nil},
		"whole, compressed":        {gzipped(records(3, 20, testNow)), nil, nil},
		"garbled":                  {garbled(), ErrInvalidRecord, ErrInvalidRecord},
		"garbled, then compressed": {gzipped(garbled()), nil, ErrInvalidRecord},
		"no compressed stream":     {noGzip, nil, ErrInvalidRecord},
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
	for _, compression := range []Compression{AsProduced, LZ4} {
		var logs [2][]byte
		for i, b := range [][]byte{misnumbered(), records(3, 20, testNow)} {
			l := openLog(t, openDir(t, testConfig(t, vfs.NewMem())), Options{Compression: compression})
			mustAppend(t, l, records(2, 20, testNow))
			mustAppend(t, l, b)
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
