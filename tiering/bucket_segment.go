package tiering

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"firn/tiering/objstore"
)

// segmentTries is how often a stream that breaks off is taken up again.
const segmentTries = 4

// readSegment streams an entry's segment and hands over block after block, each
// of which blocks (of its index; nil if unknown) vouches for. A stream that
// breaks off goes on at the block; what is damaged is ErrCorrupt, what is gone
// objstore.ErrNotFound. Both are about the object, any other error about now.
func (b *Bucket) readSegment(ctx context.Context, p Partition, e *Entry, blocks []uint32, visit func(off int64, block []byte) error) error {
	buf := make([]byte, BlockSize)
	crc, off := uint32(0), int64(0)
	for try := 1; off < e.Size; try++ {
		from := off
		err := b.streamBlocks(ctx, p, e, buf, off, func(block []byte) error {
			if i := int(off / BlockSize); blocks != nil && (i >= len(blocks) || Checksum(block) != blocks[i]) {
				return fmt.Errorf("%w: %s: block %d has another checksum than its index says", ErrCorrupt, e.LogKey(p), i)
			}
			if err := visit(off, block); err != nil {
				return err
			}
			crc = crc32.Update(crc, castagnoli, block)
			off += int64(len(block))
			return nil
		})
		var broken *brokenStream
		switch {
		case err == nil:
		case !errors.As(err, &broken) || ctx.Err() != nil:
			return err
		case off > from:
			try = 0 // it gets on
		case try == segmentTries:
			return fmt.Errorf("read %s from %d: %w", e.LogKey(p), off, broken.error)
		}
	}
	if crc != e.LogCRC {
		return fmt.Errorf("%w: %s has checksum %08x, its entry says %08x", ErrCorrupt, e.LogKey(p), crc, e.LogCRC)
	}
	return nil
}

// brokenStream is a stream that ended early: worth another GET.
type brokenStream struct{ error }

func (b *Bucket) streamBlocks(ctx context.Context, p Partition, e *Entry, buf []byte, off int64, visit func([]byte) error) error {
	r, err := b.store.GetRange(ctx, e.LogKey(p), e.Offset+off, e.Size-off)
	if errors.Is(err, objstore.ErrRange) {
		return fmt.Errorf("%w: %s is shorter than its entry says", ErrCorrupt, e.LogKey(p))
	}
	if err != nil {
		return err
	}
	defer r.Close()
	for off < e.Size {
		block := buf[:min(BlockSize, e.Size-off)]
		if _, err := io.ReadFull(r, block); err != nil {
			return &brokenStream{err}
		}
		if err := visit(block); err != nil {
			return err
		}
		off += int64(len(block))
	}
	return nil
}

// aboutObject tells whether err says something of an object, not of the moment.
func aboutObject(err error) bool {
	return errors.Is(err, objstore.ErrNotFound) || errors.Is(err, ErrCorrupt) || errors.Is(err, ErrVersion)
}
