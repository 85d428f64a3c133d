package segment

import (
	"errors"
	"fmt"
	"testing"

	"firn/segment/batch"
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
