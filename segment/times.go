package segment

import (
	"fmt"
	"math"

	"firn/segment/batch"
)

// RecordErrors refuses a batch for some of its records.
type RecordErrors struct {
	Err     error         // what is wrong with them
	Records []RecordError // the first of them, maxRecordErrors at most
}

// RecordError is what is wrong with one record.
type RecordError struct {
	Index  int32 // in its batch
	Reason string
}

func (e *RecordErrors) Error() string { return e.Err.Error() }
func (e *RecordErrors) Unwrap() error { return e.Err }

// maxRecordErrors bounds an answer by what was asked: a record takes seven bytes,
// a reason some sixty.
const maxRecordErrors = 100

// noTimestamp is that of a record or a batch that has none.
const noTimestamp = -1

// checkTimes refuses timestamps too far from the broker's clock, as Kafka does:
// every record's, where b isn't compressed; else those that its header tells. What
// the header tells as the largest of records not compressed is put right in place:
// time index, lookups and retention go by it. t is what VerifyProduced has found.
func checkTimes(b batch.Batch, t batch.Times, now int64, opts *Options) error {
	if opts.TimestampType == batch.LogAppendTime {
		return nil // it becomes the time of all
	}
	from, to := now-opts.TimestampBeforeMaxMs, now+opts.TimestampAfterMaxMs
	if to < now {
		to = math.MaxInt64
	}
	if t.Oldest < from || t.Newest > to {
		if err := refuseTimes(b, t, from, to); err != nil {
			return err
		}
	}
	if newest := max(t.Newest, noTimestamp); b.MaxTimestamp() != newest {
		b.SetMaxTimestamp(newest)
	}
	return nil
}

// refuseTimes says which timestamps of b are not within [from, to], if any but
// those that are none.
func refuseTimes(b batch.Batch, t batch.Times, from, to int64) error {
	outside := func(ts int64) bool { return ts != noTimestamp && (ts < from || ts > to) }
	if b.Codec() != batch.None {
		if outside(t.Oldest) || outside(t.Newest) {
			return fmt.Errorf("%w: a batch of %d to %d, allowed is %d to %d", ErrInvalidTimestamp, t.Oldest, t.Newest, from, to)
		}
		return nil
	}
	var wrong []RecordError
	n, index := 0, int32(0)
	err := batch.Walk(b, batch.Limit{}, func(r batch.Record) error {
		if outside(r.Timestamp) {
			if n++; n <= maxRecordErrors {
				wrong = append(wrong, RecordError{index, fmt.Sprintf("timestamp %d, allowed is %d to %d", r.Timestamp, from, to)})
			}
		}
		index++
		return nil
	})
	switch {
	case err != nil:
		return wrapBatch(err)
	case n == 0:
		return nil
	}
	return &RecordErrors{fmt.Errorf("%w: %d of %d records, the first with %s", ErrInvalidTimestamp, n, index, wrong[0].Reason), wrong}
}
