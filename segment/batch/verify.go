package batch

import (
	"errors"
	"fmt"
)

var (
	// ErrInvalid: a whole, undamaged batch that says what it must not.
	ErrInvalid = errors.New("batch: invalid")
	// ErrOffsets: a client's batch, not compressed and invalid only in that its
	// records' offsets do not count from 0. Renumber mends it.
	ErrOffsets = fmt.Errorf("%w: the offsets of its records do not count from 0", ErrInvalid)
	// ErrTimestamp: a timestamp that a client must not send.
	ErrTimestamp = errors.New("batch: invalid timestamp")
	// ErrUnknownCodec: a compression that does not exist.
	ErrUnknownCodec = errors.New("batch: unknown compression type")
)

// The reasons are made once, so that refusing a batch costs no allocation either.
var (
	errLength     = fmt.Errorf("%w: length does not match the bytes", ErrCorrupt)
	errMagic      = fmt.Errorf("%w: magic is not 2", ErrCorrupt)
	errCRC        = fmt.Errorf("%w: checksum mismatch", ErrCorrupt)
	errBaseOffset = fmt.Errorf("%w: base offset out of range", ErrCorrupt)
	errAttributes = fmt.Errorf("%w: unknown attribute bits", ErrInvalid)
	errCount      = fmt.Errorf("%w: record count does not match the offsets", ErrInvalid)
	errManyInFew  = fmt.Errorf("%w: more records than its bytes can hold", ErrInvalid)
	errTimestamps = fmt.Errorf("%w: negative", ErrTimestamp)
	errOverflow   = fmt.Errorf("%w: more than 64 bits", ErrTimestamp)
	errAppendTime = fmt.Errorf("%w: LogAppendTime is the broker's to set", ErrTimestamp)
	errProducer   = fmt.Errorf("%w: producer id, epoch and sequence do not agree", ErrInvalid)
	errControl    = fmt.Errorf("%w: control batch from a client", ErrInvalid)
	errHorizon    = fmt.Errorf("%w: delete horizon from a client", ErrInvalid)
)

// Verify checks that b is an undamaged batch of a log: size, magic, CRC, and
// that its offsets and its count of records make sense. It accepts what
// compaction leaves: fewer records than offsets, and none at all. It does not
// look at the records. ErrCorrupt for damage, ErrInvalid or ErrUnknownCodec for
// nonsense. No allocation.
func Verify(b Batch) error {
	if err := verifyWhole(b); err != nil {
		return err
	}
	if b.BaseOffset() < 0 || b.NextOffset() < 0 {
		return errBaseOffset
	}
	return nil
}

// Times are the least and the largest timestamp of something.
type Times struct{ Oldest, Newest int64 }

// with is t and ts.
func (t Times) with(ts int64) Times {
	return Times{Oldest: min(t.Oldest, ts), Newest: max(t.Newest, ts)}
}

// VerifyProduced is Verify for a batch from a client, which must number its
// records without gaps and may not write what only brokers do. It looks at the
// records too, unless they are compressed: what a writer garbled before it took
// the CRC, no reader gets past. The base offset does not matter, since the broker
// stamps it. Beside the errors of Verify there are ErrTimestamp and ErrOffsets.
//
// The times are those of the records; of compressed ones, what the header says.
func VerifyProduced(b Batch) (Times, error) {
	if err := verifyWhole(b); err != nil {
		return Times{}, err
	}
	base := b.BaseTimestamp()
	switch a := b.Attributes(); {
	case a&^maskKnownAttributes != 0:
		return Times{}, errAttributes
	case a.IsControl():
		return Times{}, errControl
	case a.HasDeleteHorizon():
		return Times{}, errHorizon
	case b.Count() < 1 || b.Count() != b.LastOffsetDelta()+1:
		return Times{}, errCount
	case a.TimestampType() == LogAppendTime:
		return Times{}, errAppendTime
	case b.MaxTimestamp() < -1 || base < -1: // -1 is none
		return Times{}, errTimestamps
	}
	if err := verifyProducer(b); err != nil {
		return Times{}, err
	}
	if b.Codec() != None {
		return Times{min(base, b.MaxTimestamp()), b.MaxTimestamp()}, nil
	}
	deltas, err := verifyRecords(b.Records(), int(b.Count()))
	t := Times{base + deltas.Oldest, base + deltas.Newest}
	if err == nil && (deltas.Newest > 0 && t.Newest < base || deltas.Oldest < 0 && t.Oldest > base) {
		err = errOverflow
	}
	return t, err
}

func verifyWhole(b Batch) error {
	if len(b) < HeaderSize || b.Length() != len(b) {
		return errLength
	}
	if b.Magic() != magicV2 {
		return errMagic
	}
	if b.CRC() != b.checksum() {
		return errCRC
	}
	delta, count, codec := b.LastOffsetDelta(), b.Count(), b.Codec()
	switch {
	case !codec.Known():
		return ErrUnknownCodec
	case delta < 0 || count < 0 || int64(count) > int64(delta)+1:
		return errCount
	case codec == None && int64(count)*minRecordSize > int64(len(b)-HeaderSize):
		return errManyInFew
	}
	return nil
}

// minRecordSize is a record without anything: its length, attributes, two
// deltas, two lengths and the number of headers, one byte each.
const minRecordSize = 7

func verifyProducer(b Batch) error {
	id := b.ProducerID()
	switch {
	case id < NoProducer,
		id > NoProducer && (b.ProducerEpoch() < 0 || b.BaseSequence() < 0),
		id == NoProducer && b.IsTransactional():
		return errProducer
	}
	return nil
}
