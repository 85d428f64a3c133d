package segment

import (
	"errors"
	"fmt"

	"firn/segment/batch"
)

// limit bounds what a client's batch may decompress to.
func (o *Options) limit() batch.Limit { return batch.Limit{} }

// recompress returns b with its batches compressed by codec.
func recompress(b []byte, codec batch.Codec, opts *Options) ([]byte, error) {
	out := make([]byte, 0, len(b))
	for rest := b; len(rest) > 0; {
		var bt batch.Batch
		bt, rest, _ = batch.Next(rest)
		if bt.Codec() != codec && !bt.IsControl() {
			var err error
			if bt, err = batch.Recompress(bt, codec, opts.CompressionLevel, opts.limit()); err != nil {
				return nil, wrapContent(err)
			}
			if len(bt) > opts.MaxMessageBytes {
				return nil, wrapTooLarge(len(bt), opts)
			}
		}
		out = append(out, bt...)
	}
	return out, nil
}

// wrapContent is wrapBatch for what is inside a batch whose checksum is right: its
// writer made it so, and "corrupt" would have it sent again and again.
func wrapContent(err error) error {
	if errors.Is(err, batch.ErrCorrupt) {
		return fmt.Errorf("%w: %w", ErrInvalidRecord, err)
	}
	return wrapBatch(err)
}

// firstSince returns the first record of b at or after offset from whose
// timestamp is at least ts.
func firstSince(b batch.Batch, ts, from int64) (o TimeOffset, found bool, err error) {
	err = batch.Walk(b, batch.Limit{}, func(r batch.Record) error {
		if r.Offset < from || r.Timestamp < ts {
			return nil
		}
		o = TimeOffset{Timestamp: r.Timestamp, Offset: r.Offset, Epoch: b.LeaderEpoch()}
		found = true
		return batch.Stop
	})
	return o, found, err
}

// newestIn returns the first record of b at or after offset from with the
// largest timestamp.
func newestIn(b batch.Batch, from int64) (o TimeOffset, found bool, err error) {
	err = batch.Walk(b, batch.Limit{}, func(r batch.Record) error {
		if r.Offset >= from && (!found || r.Timestamp > o.Timestamp) {
			o = TimeOffset{Timestamp: r.Timestamp, Offset: r.Offset, Epoch: b.LeaderEpoch()}
			found = true
		}
		return nil
	})
	return o, found, err
}
