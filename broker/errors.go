package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/twmb/franz-go/pkg/kerr"

	"firn/replication"
	"firn/replication/meta"
	"firn/segment"
	"firn/tiering"
)

// errorTable maps what the layers below return to Kafka's codes: the only place
// where that is decided. The first row that matches counts.
var errorTable = []struct {
	err  error
	code *kerr.Error
}{
	{segment.ErrOffsetOutOfRange, kerr.OffsetOutOfRange},
	{segment.ErrFenced, kerr.NotLeaderForPartition},
	{replication.ErrNotLeader, kerr.NotLeaderForPartition},
	{replication.ErrFencedEpoch, kerr.FencedLeaderEpoch},
	{replication.ErrUnknownEpoch, kerr.UnknownLeaderEpoch},
	{replication.ErrNotEnoughReplicas, kerr.NotEnoughReplicas},
	{replication.ErrNotEnoughReplicasAfterAppend, kerr.NotEnoughReplicasAfterAppend},
	{replication.ErrOffsetNotAvailable, kerr.OffsetNotAvailable},
	{replication.ErrMovedToArchive, kerr.OffsetMovedToTieredStorage},
	{segment.ErrNoSpace, kerr.KafkaStorageError},
	{syscall.ENOSPC, kerr.KafkaStorageError}, // of the metadata file
	{syscall.EDQUOT, kerr.KafkaStorageError},
	{segment.ErrFailed, kerr.KafkaStorageError},
	{segment.ErrQuarantined, kerr.KafkaStorageError},
	{segment.ErrClosed, kerr.NotLeaderForPartition},
	{segment.ErrCorrupt, kerr.CorruptMessage},
	{segment.ErrUnsupportedFormat, kerr.UnsupportedForMessageFormat},
	{segment.ErrTooLarge, kerr.MessageTooLarge},
	{segment.ErrTooLargeForSegment, kerr.RecordListTooLarge},
	{segment.ErrInvalidRecord, kerr.InvalidRecord},
	{segment.ErrInvalidTimestamp, kerr.InvalidTimestamp},
	{segment.ErrUnsupportedCodec, kerr.UnsupportedCompressionType},
	{segment.ErrOutOfOrderSequence, kerr.OutOfOrderSequenceNumber},
	{segment.ErrDuplicateSequence, kerr.DuplicateSequenceNumber},
	{segment.ErrProducerFenced, kerr.InvalidProducerEpoch},
	{segment.ErrUnknownProducer, kerr.UnknownProducerID},
	{segment.ErrTransactionDenied, kerr.InvalidTxnState},
	{segment.ErrCoordinatorFenced, kerr.TransactionCoordinatorFenced},
	{tiering.ErrUnavailable, kerr.KafkaStorageError},
	{tiering.ErrLost, kerr.CorruptMessage},
	{tiering.ErrFenced, kerr.NotLeaderForPartition},
	{tiering.ErrMoved, kerr.KafkaStorageError},
	{tiering.ErrNotOurs, kerr.KafkaStorageError},
	{tiering.ErrRolledBack, kerr.KafkaStorageError},
	{tiering.ErrDiverged, kerr.KafkaStorageError},
	{meta.ErrTooLarge, kerr.InvalidRequest},
	{meta.ErrVersion, kerr.NotController}, // changed meanwhile: ask again
	{meta.ErrClosed, kerr.NotController},
	{context.DeadlineExceeded, kerr.RequestTimedOut},
}

// kafkaError is the Kafka error that err is answered with; nil for nil. An error
// that the table doesn't know is our own mistake: UNKNOWN_SERVER_ERROR.
func kafkaError(err error) *kerr.Error {
	if err == nil {
		return nil
	}
	if ke := (*kerr.Error)(nil); errors.As(err, &ke) {
		return ke
	}
	for _, row := range errorTable {
		if errors.Is(err, row.err) {
			return row.code
		}
	}
	return kerr.UnknownServerError
}

// errorCode is kafkaError's code, 0 for nil.
func errorCode(err error) int16 {
	if ke := kafkaError(err); ke != nil {
		return ke.Code
	}
	return 0
}

// refusal is a Kafka error with words for the person at the client.
type refusal struct {
	code  *kerr.Error
	words string
}

func (r *refusal) Error() string { return r.words }
func (r *refusal) Unwrap() error { return r.code }

// refuse makes an error that is answered with code and these words.
func refuse(code *kerr.Error, format string, args ...any) error {
	return &refusal{code: code, words: fmt.Sprintf(format, args...)}
}

// ourNames are the packages that errors of the layers below begin with.
var ourNames = strings.NewReplacer("segment: ", "", "replication: ", "", "tiering: ", "", "batch: ", "", "meta: ", "")

// clientWords are an error's own words without what only our log's readers know.
func clientWords(err error) string { return ourNames.Replace(err.Error()) }

// errorMessage is what goes with an error's code: its own words if it has any
// for clients, else Kafka's description of the code; nil for nil. Errors of the
// layers below stay in our log, for they name files.
func errorMessage(err error) *string {
	if err == nil {
		return nil
	}
	if r := (*refusal)(nil); errors.As(err, &r) {
		return &r.words
	}
	return &kafkaError(err).Description
}
