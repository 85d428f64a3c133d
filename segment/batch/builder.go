package batch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// Header is a record header. A nil Value is null.
type Header struct {
	Key   string
	Value []byte
}

// Producer is the idempotent producer that a batch is from.
type Producer struct {
	ID       int64
	Epoch    int16
	Sequence int32 // of the first record; -1 in control batches
}

// Spec is what a batch says of itself besides its records. The zero value is
// an uncompressed batch at offset 0 without a producer.
type Spec struct {
	BaseOffset    int64
	LeaderEpoch   int32
	Codec         Codec
	Level         int       // as in compression.<codec>.level; 0 is the codec's default
	Producer      *Producer // nil for none
	Transactional bool
	Control       bool
}

// Builder makes a batch. Records count from Spec.BaseOffset on, without gaps.
type Builder struct {
	spec          Spec
	buf           []byte // HeaderSize bytes, then the records, uncompressed
	count         int32
	baseTimestamp int64
	maxTimestamp  int64
}

// NewBuilder begins a batch.
func NewBuilder(spec Spec) *Builder { return &Builder{spec: spec, buf: make([]byte, HeaderSize)} }

// Add adds a record; timestamp is in Unix milliseconds, nil key and value are
// null. It keeps none of its arguments.
func (b *Builder) Add(timestamp int64, key, value []byte, headers ...Header) {
	if b.count == 0 {
		b.baseTimestamp, b.maxTimestamp = timestamp, timestamp
	}
	b.buf = appendRecord(b.buf, timestamp-b.baseTimestamp, b.count, key, value, headers)
	b.maxTimestamp = max(b.maxTimestamp, timestamp)
	b.count++
}

// Count is the number of records so far.
func (b *Builder) Count() int { return int(b.count) }

// Size is the size of the batch so far, before compression.
func (b *Builder) Size() int { return len(b.buf) }

// Build ends the batch; the Builder must not be used after it. An error means
// an unknown codec, or a batch that is empty or larger than the format can say.
func (b *Builder) Build() (Batch, error) {
	if b.count == 0 {
		return nil, fmt.Errorf("%w: no records", ErrInvalid)
	}
	batch := Batch(b.buf)
	if b.spec.Codec != None {
		c, err := newCompressor(b.spec.Codec, b.spec.Level)
		if err != nil {
			return nil, err
		}
		out := bytes.NewBuffer(make([]byte, HeaderSize, HeaderSize+len(b.buf)/2))
		err = c.compress(out, func(w io.Writer) error {
			_, err := w.Write(b.buf[HeaderSize:])
			return err
		})
		if err != nil {
			return nil, err
		}
		batch = out.Bytes()
	}
	if len(batch) > math.MaxInt32 {
		return nil, fmt.Errorf("%w: %d bytes", ErrTooLarge, len(batch))
	}
	b.putHeader(batch)
	return batch[:len(batch):len(batch)], nil
}

func (b *Builder) putHeader(batch Batch) {
	attributes := Attributes(b.spec.Codec)
	if b.spec.Transactional {
		attributes |= flagTransactional
	}
	if b.spec.Control {
		attributes |= flagControl
	}
	p := Producer{ID: NoProducer, Epoch: -1, Sequence: -1}
	if b.spec.Producer != nil {
		p = *b.spec.Producer
	}
	batch.SetBaseOffset(b.spec.BaseOffset)
	batch.SetLeaderEpoch(b.spec.LeaderEpoch)
	batch[atMagic] = magicV2
	put := binary.BigEndian
	put.PutUint32(batch[atLength:], uint32(len(batch)-lengthOverhead))
	put.PutUint16(batch[atAttributes:], uint16(attributes))
	put.PutUint32(batch[atLastOffsetDelta:], uint32(b.count-1))
	put.PutUint64(batch[atBaseTimestamp:], uint64(b.baseTimestamp))
	put.PutUint64(batch[atMaxTimestamp:], uint64(b.maxTimestamp))
	put.PutUint64(batch[atProducerID:], uint64(p.ID))
	put.PutUint16(batch[atProducerEpoch:], uint16(p.Epoch))
	put.PutUint32(batch[atBaseSequence:], uint32(p.Sequence))
	put.PutUint32(batch[atCount:], uint32(b.count))
	batch.seal()
}
