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
	var mended []byte // what has come so far, once a batch had to be renumbered
	for rest := b; len(rest) > 0; {
		bt, r, err := batch.Next(rest)
		if err != nil {
			return nil, wrapBatch(err)
		}
		err = checkBatch(bt, o, opts)
		if errors.Is(err, batch.ErrOffsets) {
			// There are clients that give all records the offset 0. Kafka acknowledges
			// and stores that as it is, and most readers then pass over all but the
			// first record.
			if mended == nil {
				mended = append(make([]byte, 0, len(b)+len(b)/8), b[:len(b)-len(rest)]...)
			}
			bt = batch.Renumber(bt)
			err = checkBatch(bt, o, opts)
		}
		if err != nil {
			return nil, err
		}
		if mended != nil {
			mended = append(mended, bt...)
		}
		change = change || reencode && bt.Codec() != codec && !bt.IsControl()
		rest = r
	}
	if mended != nil {
		b = mended
	}
	if !change {
		return b, nil
	}
	return recompress(b, codec, opts)
}

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
