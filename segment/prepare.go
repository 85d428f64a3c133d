package segment

import (
	"errors"
	"fmt"

	"firn/segment/batch"
)

// prepare checks what comes to be appended as leader, without the log's lock.
// Where the topic wants another compression, or a writer has numbered its records
// wrongly, it returns new bytes.
func prepare(b []byte, o AppendOptions, opts *Options) ([]byte, error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("%w: no batch", ErrInvalidRecord)
	}
	codec, reencode := opts.Compression.Codec()
	change := false
	for rest := b; len(rest) > 0; {
		bt, r, err := batch.Next(rest)
		if err != nil {
			return nil, wrapBatch(err)
		}
		if o.Origin == OriginClient && len(r) > 0 {
			return nil, errBatches
		}
		err = checkBatch(bt, o, opts)
		if errors.Is(err, batch.ErrOffsets) {
			// There are clients that give all records the offset 0. Kafka acknowledges
			// and stores that as it is, and most readers then pass over all but the
			// first record.
			bt = batch.Renumber(bt)
			b = bt // the only one
			err = checkBatch(bt, o, opts)
		}
		if err != nil {
			return nil, err
		}
		change = change || reencode && bt.Codec() != codec && !bt.IsControl()
		rest = r
	}
	if !change {
		return b, nil
	}
	return recompress(b, codec, opts)
}

// errBatches: a client sends one batch for a partition, as to Kafka. Of two, a
// client that tries again could not say which one the log has.
var errBatches = fmt.Errorf("%w: more than one batch for a partition", ErrInvalidRecord)

func checkBatch(b batch.Batch, o AppendOptions, opts *Options) error {
	if len(b) > opts.MaxMessageBytes {
		return fmt.Errorf("%w: %d bytes, %d allowed", ErrTooLarge, len(b), opts.MaxMessageBytes)
	}
	if o.Origin == OriginCoordinator {
		if err := batch.Verify(b); err != nil {
			return wrapBatch(err)
		}
		return nil
	}
	times, err := batch.VerifyProduced(b)
	if err != nil {
		return wrapBatch(err)
	}
	if b.IsTransactional() {
		// Until the broker has a coordinator to ask, no transaction is open (E5).
		return ErrTransactionDenied
	}
	return checkTimes(b, times, o.Now, opts)
}

// wrapBatch gives an error of package batch the meaning that callers branch on.
func wrapBatch(err error) error {
	kind := ErrCorrupt
	switch {
	case errors.Is(err, batch.ErrOldFormat):
		kind = ErrUnsupportedFormat
	case errors.Is(err, batch.ErrUnknownCodec):
		kind = ErrUnsupportedCodec
	case errors.Is(err, batch.ErrInvalid):
		kind = ErrInvalidRecord
	case errors.Is(err, batch.ErrTimestamp):
		kind = ErrInvalidTimestamp
	case errors.Is(err, batch.ErrTooLarge):
		kind = ErrTooLarge
	}
	return fmt.Errorf("%w: %w", kind, err)
}

func wrapTooLarge(size int, opts *Options) error {
	return fmt.Errorf("%w: %d bytes, %d allowed", ErrTooLarge, size, opts.MaxMessageBytes)
}
