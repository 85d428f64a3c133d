package wire

import "encoding/binary"

var be = binary.BigEndian

func appendUvarint(dst []byte, v uint32) []byte {
	for v >= 0x80 {
		dst = append(dst, byte(v)|0x80)
		v >>= 7
	}
	return append(dst, byte(v))
}

func uvarintLen(v uint32) int {
	n := 1
	for ; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}

func appendArrayLen(dst []byte, n int, flex bool) []byte {
	if flex {
		return appendUvarint(dst, uint32(n)+1)
	}
	return be.AppendUint32(dst, uint32(n))
}

func appendString(dst, s []byte, flex bool) []byte {
	if flex {
		dst = appendUvarint(dst, uint32(len(s))+1)
	} else {
		dst = be.AppendUint16(dst, uint16(len(s)))
	}
	return append(dst, s...)
}

// appendNullable appends s, null if it is empty.
func appendNullable(dst []byte, s string, flex bool) []byte {
	switch {
	case s == "" && flex:
		return append(dst, 0)
	case s == "":
		return append(dst, 0xff, 0xff)
	case flex:
		dst = appendUvarint(dst, uint32(len(s))+1)
	default:
		dst = be.AppendUint16(dst, uint16(len(s)))
	}
	return append(dst, s...)
}

// Leader tells a client where a partition is led now (KIP-951). The zero
// value's ID is a broker; use NoLeader to say nothing.
type Leader struct {
	ID    int32
	Epoch int32
}

// NoLeader says nothing of a leader.
var NoLeader = Leader{ID: -1, Epoch: -1}

// appendLeader appends a partition's tag number num of the leader.
func appendLeader(dst []byte, num byte, l Leader) []byte {
	dst = append(dst, num, 9) // size: two int32 and no tags
	dst = be.AppendUint32(dst, uint32(l.ID))
	dst = be.AppendUint32(dst, uint32(l.Epoch))
	return append(dst, 0)
}

// Node is where clients reach a broker that a response names as a leader.
type Node struct {
	ID   int32
	Host string
	Port int32
	Rack string
}

// appendNodes appends the tags at the end of a response: the nodes, if any.
func appendNodes(dst []byte, nodes []Node) []byte {
	if len(nodes) == 0 {
		return append(dst, 0)
	}
	size := uvarintLen(uint32(len(nodes)) + 1)
	for _, n := range nodes {
		size += 4 + uvarintLen(uint32(len(n.Host))+1) + len(n.Host) + 4 + 1
		size += uvarintLen(uint32(len(n.Rack))+1) + len(n.Rack)
	}
	dst = append(dst, 1, 0)
	dst = appendUvarint(dst, uint32(size))
	dst = appendArrayLen(dst, len(nodes), true)
	for _, n := range nodes {
		dst = be.AppendUint32(dst, uint32(n.ID))
		dst = appendUvarint(dst, uint32(len(n.Host))+1)
		dst = append(dst, n.Host...)
		dst = be.AppendUint32(dst, uint32(n.Port))
		dst = appendNullable(dst, n.Rack, true)
		dst = append(dst, 0)
	}
	return dst
}
