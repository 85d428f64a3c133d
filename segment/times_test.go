package segment

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"firn/segment/batch"
	"firn/segment/vfs"
)

const year9999 = 253_402_300_799_000

// telling is b, whose header tells oldest and newest; CRC and records fit it.
func telling(b []byte, newest int64) batch.Batch {
	binary.BigEndian.PutUint64(b[35:], uint64(newest))
	return reseal(b)
}

// ofTimes is a batch with a record of each timestamp, all as deltas from base.
func ofTimes(base int64, times ...int64) batch.Batch {
	w := batch.NewBuilder(batch.Spec{})
	w.Add(base, nil, nil)
	for _, ts := range times {
		w.Add(ts, []byte("k"), []byte("v"))
	}
	b, err := w.Build()
	if err != nil {
		panic(err)
	}
	// The record that gave the base goes: seven bytes of nothing, and the others
	// count from 0.
	b = slices.Delete(b, batch.HeaderSize, batch.HeaderSize+7)
	binary.BigEndian.PutUint32(b[23:], uint32(len(times)-1))
	binary.BigEndian.PutUint32(b[57:], uint32(len(times)))
	return batch.Renumber(reseal(b))
}

// stored is the one batch that l holds.
func stored(t *testing.T, l *Log) batch.Batch {
	t.Helper()
	r, err := l.Read(ReadRequest{MaxBytes: 1 << 16, Until: UntilCounted})
	if err != nil {
		t.Fatal(err)
	}
	b, err := bytesOf(&r.Records)
	if err != nil {
		t.Fatal(err)
	}
	if err := batch.Verify(b); err != nil {
		t.Fatal(err)
	}
	return b
}

// What a header tells as the largest timestamp is put right where the records say
// otherwise: the time index, lookups and retention by time go by it.
func TestTheLargestTimestampIsThatOfTheRecords(t *testing.T) {
	three := func() []byte { return records(3, 20, testNow) }
	for name, c := range map[string]struct {
		b    batch.Batch
		opts Options
		want int64
	}{
		"right":                     {telling(three(), testNow+2), Options{}, testNow + 2},
		"year 9999":                 {telling(three(), year9999), Options{}, testNow + 2},
		"year 1970":                 {telling(three(), 0), Options{}, testNow + 2},
		"none":                      {telling(three(), -1), Options{}, testNow + 2},
		"a millisecond less":        {telling(three(), testNow+1), Options{}, testNow + 2},
		"the largest is the first":  {telling(ofTimes(testNow, testNow+9, testNow-9), testNow), Options{}, testNow + 9},
		"all before the base":       {telling(ofTimes(testNow, testNow-9, testNow-8), testNow), Options{}, testNow - 8},
		"records without":           {telling(ofTimes(-1, -1, -1), testNow), Options{}, -1},
		"records without, a bound":  {telling(ofTimes(-1, -1, -1), testNow), Options{TimestampBeforeMaxMs: 1000}, -1},
		"records before 1970":       {telling(ofTimes(0, -5, -4), testNow), Options{}, -1},
		"misnumbered":               {telling(misnumbered(), year9999), Options{}, testNow + 2},
		"to be compressed":          {telling(three(), year9999), Options{Compression: LZ4}, testNow + 2},
		"misnumbered, and that":     {telling(misnumbered(), year9999), Options{Compression: Zstd}, testNow + 2},
		"LogAppendTime":             {telling(three(), year9999), Options{TimestampType: batch.LogAppendTime}, testNow},
		"compressed, which is kept": {telling(gzipped(three()), testNow-7), Options{}, testNow - 7},
	} {
		l := openLog(t, openDir(t, testConfig(t, vfs.NewMem())), c.opts)
		sent := bytes.Clone(c.b)
		mustAppend(t, l, c.b)
		b := stored(t, l)
		if got := b.MaxTimestamp(); got != c.want {
			t.Errorf("%s: %d is stored, want %d", name, got, c.want)
		}
		if name == "right" && binary.BigEndian.Uint32(sent[17:]) != b.CRC() {
			t.Errorf("%s: changed", name)
		}
		if o, err := l.OffsetForTime(context.Background(), c.want+1, UntilCounted); err != nil || o.Offset != -1 {
			t.Errorf("%s: a later record is found: %+v, %v", name, o, err)
		}
		if c.want < 0 || b.Codec() == batch.Gzip {
			continue
		}
		if o, err := l.OffsetForTime(context.Background(), c.want, UntilCounted); err != nil || o.Timestamp != c.want {
			t.Errorf("%s: the newest is not found: %+v, %v", name, o, err)
		}
	}
}

// Every record's timestamp is held to the topic's bounds, as by Kafka; what the
// header tells matters only where the records are compressed.
func TestTimestampsAreHeldToTheBounds(t *testing.T) {
	const hour = 3600_000
	before := Options{TimestampBeforeMaxMs: 1000}
	for name, c := range map[string]struct {
		b     batch.Batch
		opts  Options
		wrong []int32 // records
		whole bool    // refused, but without a word of records
	}{
		"as late as can be":              {ofTimes(testNow, testNow, testNow+hour), Options{}, nil, false},
		"one later":                      {ofTimes(testNow, testNow, testNow+hour+1, testNow), Options{}, []int32{1}, false},
		"one later, a header of now":     {telling(ofTimes(testNow, testNow, testNow+hour+1), testNow), Options{}, []int32{1}, false},
		"a header of 9999":               {telling(ofTimes(testNow, testNow), year9999), Options{}, nil, false},
		"any time":                       {ofTimes(testNow, year9999, 0), Options{TimestampAfterMaxMs: never}, nil, false},
		"as early as can be":             {ofTimes(testNow, testNow-1000, testNow), before, nil, false},
		"two earlier":                    {ofTimes(testNow, testNow-1001, testNow, 0), before, []int32{0, 2}, false},
		"a base of 1970":                 {ofTimes(0, testNow, testNow), before, nil, false},
		"some without":                   {ofTimes(testNow, -1, testNow, -1), before, nil, false},
		"one without, one earlier":       {ofTimes(testNow, -1, 5), before, []int32{1}, false},
		"before 1970":                    {ofTimes(testNow, testNow, -2), before, []int32{1}, false},
		"before 1970, no bound":          {ofTimes(testNow, testNow, -2), Options{}, nil, false},
		"early and late, misnumbered":    {telling(misnumbered(), 0), Options{TimestampBeforeMaxMs: 1, TimestampAfterMaxMs: 1}, []int32{2}, false},
		"LogAppendTime":                  {ofTimes(testNow, 0, year9999), Options{TimestampType: batch.LogAppendTime, TimestampBeforeMaxMs: 1}, nil, false},
		"compressed":                     {telling(gzipped(records(3, 20, testNow+2*hour)), testNow), Options{}, nil, false},
		"compressed, a header of 9999":   {telling(gzipped(records(3, 20, testNow)), year9999), Options{}, nil, true},
		"compressed, a header of before": {gzipped(records(3, 20, testNow-2000)), before, nil, true},
		"compressed, no timestamps":      {telling(gzipped(ofTimes(-1, -1, -1)), -1), before, nil, false},
	} {
		l := openLog(t, openDir(t, testConfig(t, vfs.NewMem())), c.opts)
		_, err := l.Append(c.b, AppendOptions{Now: testNow})
		refused := c.whole || len(c.wrong) > 0
		if errors.Is(err, ErrInvalidTimestamp) != refused || !refused && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var wrong []int32
		if re := (*RecordErrors)(nil); errors.As(err, &re) {
			for _, r := range re.Records {
				wrong = append(wrong, r.Index)
			}
		}
		if !slices.Equal(wrong, c.wrong) {
			t.Errorf("%s: records %v are named, want %v", name, wrong, c.wrong)
		}
		if end := l.Offsets().End; refused != (end == 0) {
			t.Errorf("%s: the log ends at %d", name, end)
		}
	}
}

// An answer does not grow with a batch.
func TestNotEveryWrongTimestampIsNamed(t *testing.T) {
	l := openLog(t, openDir(t, testConfig(t, vfs.NewMem())), Options{TimestampBeforeMaxMs: 1})
	_, err := l.Append(records(1000, 1, 1), AppendOptions{Now: testNow})
	var re *RecordErrors
	if !errors.As(err, &re) || len(re.Records) != maxRecordErrors {
		t.Errorf("%v", err)
	}
}
