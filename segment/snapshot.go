package segment

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"maps"
	"slices"
)

// A .snapshot file is Kafka's: what was known of the producers at the offset
// that is its name.
//
//	version  int16  1
//	crc      uint32 CRC-32C of all that follows
//	count    int32
//	count × {producer id int64, epoch int16, last sequence int32, last offset
//	         int64, offset delta int32, timestamp int64, coordinator epoch
//	         int32, first offset of the open transaction int64 (-1 none)}
const (
	snapshotVersion    = 1
	snapshotHeaderSize = 2 + 4 + 4
	snapshotEntrySize  = 8 + 2 + 4 + 8 + 4 + 8 + 4 + 8
)

var errSnapshot = errors.New("segment: producer snapshot is damaged")

// appendSnapshot appends the bytes of a snapshot file of t to dst.
func (t *producers) appendSnapshot(dst []byte) []byte {
	start := len(dst)
	dst = binary.BigEndian.AppendUint16(dst, snapshotVersion)
	dst = binary.BigEndian.AppendUint32(dst, 0)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(t.byID)))
	ids := slices.Sorted(maps.Keys(t.byID))
	for _, id := range ids {
		p := t.byID[id]
		last := p.last()
		dst = binary.BigEndian.AppendUint64(dst, uint64(id))
		dst = binary.BigEndian.AppendUint16(dst, uint16(p.epoch))
		dst = binary.BigEndian.AppendUint32(dst, uint32(last.lastSeq))
		dst = binary.BigEndian.AppendUint64(dst, uint64(last.lastOffset))
		dst = binary.BigEndian.AppendUint32(dst, uint32(last.delta))
		dst = binary.BigEndian.AppendUint64(dst, uint64(p.lastTime))
		dst = binary.BigEndian.AppendUint32(dst, uint32(p.coordinatorEpoch))
		dst = binary.BigEndian.AppendUint64(dst, uint64(p.txnStart))
	}
	sum := crc32.Checksum(dst[start+6:], castagnoli)
	binary.BigEndian.PutUint32(dst[start+2:], sum)
	return dst
}

// loadSnapshot makes t what the file b holds.
func (t *producers) loadSnapshot(b []byte) error {
	if len(b) < snapshotHeaderSize || binary.BigEndian.Uint16(b) != snapshotVersion {
		return errSnapshot
	}
	n := int64(binary.BigEndian.Uint32(b[6:]))
	body := b[snapshotHeaderSize:]
	if int64(len(body)) != n*snapshotEntrySize || crc32.Checksum(b[6:], castagnoli) != binary.BigEndian.Uint32(b[2:]) {
		return errSnapshot
	}
	t.reset()
	for ; len(body) > 0; body = body[snapshotEntrySize:] {
		be := binary.BigEndian
		p := &producer{
			id:               int64(be.Uint64(body)),
			epoch:            int16(be.Uint16(body[8:])),
			lastTime:         int64(be.Uint64(body[26:])),
			coordinatorEpoch: int32(be.Uint32(body[34:])),
			txnStart:         int64(be.Uint64(body[38:])),
		}
		last := producerBatch{
			lastSeq:    int32(be.Uint32(body[10:])),
			lastOffset: int64(be.Uint64(body[14:])),
			delta:      int32(be.Uint32(body[22:])),
			time:       p.lastTime,
		}
		if p.id < 0 || last.delta < 0 || p.txnStart < -1 || last.lastOffset < -1 {
			t.reset()
			return errSnapshot
		}
		if last.lastOffset >= 0 && last.lastSeq >= 0 {
			p.push(last)
		}
		t.byID[p.id] = p
		if p.txnStart >= 0 {
			t.open = append(t.open, openTxn{p.id, p.txnStart})
		}
	}
	slices.SortFunc(t.open, func(a, b openTxn) int { return cmpInt64(a.first, b.first) })
	return nil
}

// MaxProducerID is the highest producer id that a .snapshot file names, -1 for
// none: whoever goes on from the file must not hand out those ids again.
func MaxProducerID(snapshot []byte) (int64, error) {
	var t producers
	if err := t.loadSnapshot(snapshot); err != nil {
		return -1, err
	}
	highest := int64(-1)
	for id := range t.byID {
		highest = max(highest, id)
	}
	return highest, nil
}

// castagnoli is never written; MakeTable returns one shared table.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)
