package batch

import (
	"errors"
	"fmt"
)

var (
	// ErrInvalid: a whole, undamaged batch that says what it must not.
	ErrInvalid = errors.New("batch: invalid")
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
	errTimestamps = fmt.Errorf("%w: negative timestamp", ErrInvalid)
	errProducer   = fmt.Errorf("%w: producer id, epoch and sequence do not agree", ErrInvalid)
	errControl    = fmt.Errorf("%w: control batch from a client", ErrInvalid)
	errHorizon    = fmt.Errorf("%w: delete horizon from a client", ErrInvalid)
)

// Verify checks that b is an undamaged batch of a log: size, magic, CRC, and
// that the fields of the header agree with each other. It accepts what
// compaction leaves: fewer records than offsets, and none at all. It does not
// look at the records. ErrCorrupt for damage, ErrInvalid or ErrUnknownCodec for
// sense. No allocation.
func Verify(b Batch) error {
	if len(b) < HeaderSize || b.Length() != len(b) {
		return errLength
	}
	if b.Magic() != magicV2 {
		return errMagic
	}
	if b.CRC() != b.checksum() {
		return errCRC
	}
	return verifyHeader(b)
}

// VerifyProduced is Verify for a batch from a client, which must number its
// records without gaps and may not write control batches or delete horizons.
// The base offset, which the broker stamps, may be anything that Verify accepts.
func VerifyProduced(b Batch) error {
	if err := Verify(b); err != nil {
		return err
	}
	switch a := b.Attributes(); {
	case a.IsControl():
		return errControl
	case a.HasDeleteHorizon():
		return errHorizon
	case b.Count() < 1 || b.Count() != b.LastOffsetDelta()+1:
		return errCount
	case b.HasProducer() && b.BaseSequence() < 0:
		return errProducer
	}
	return nil
}

func verifyHeader(b Batch) error {
	a, delta, count := b.Attributes(), b.LastOffsetDelta(), b.Count()
	switch {
	case b.BaseOffset() < 0 || b.NextOffset() < 0:
		return errBaseOffset
	case a&^maskKnownAttributes != 0:
		return errAttributes
	case !a.Codec().Known():
		return ErrUnknownCodec
	case delta < 0 || count < 0 || int64(count) > int64(delta)+1:
		return errCount
	case a.Codec() == None && int64(count)*minRecordSize > int64(len(b)-HeaderSize):
		return errManyInFew
	}
	return verifyTimesAndProducer(b)
}

// minRecordSize is a record without anything: its length, attributes, two
// deltas, two lengths and the number of headers, one byte each.
const minRecordSize = 7

func verifyTimesAndProducer(b Batch) error {
	// -1 is "no timestamp"; lower values mean nothing.
	if b.MaxTimestamp() < -1 || b.BaseTimestamp() < -1 {
		return errTimestamps
	}
	id, epoch := b.ProducerID(), b.ProducerEpoch()
	switch {
	case id < NoProducer:
		return errProducer
	case id > NoProducer && epoch < 0:
		return errProducer
	case id == NoProducer && b.IsTransactional():
		return errProducer
	}
	return nil
}
