package workload

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
)

// encode makes a value that nobody else writes and that tells its damage:
// "partition/producer/n/", filler, and a checksum of all that.
func encode(partition int32, producer string, n int64, size int) []byte {
	b := make([]byte, 0, max(size, 64))
	b = fmt.Appendf(b, "%d/%s/%d/", partition, producer, n)
	for i := n; len(b) < size-4; i++ {
		b = append(b, 'a'+byte(i%26))
	}
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

// Decode tells whose value it is; ok is false if it is damaged or was meant for
// another partition.
func Decode(partition int32, b []byte) (producer string, n int64, ok bool) {
	if len(b) < 4 {
		return "", 0, false
	}
	body := b[:len(b)-4]
	if crc32.ChecksumIEEE(body) != binary.BigEndian.Uint32(b[len(body):]) {
		return "", 0, false
	}
	f := strings.SplitN(string(body), "/", 4)
	if len(f) != 4 || f[0] != strconv.Itoa(int(partition)) || f[1] == "" {
		return "", 0, false
	}
	n, err := strconv.ParseInt(f[2], 10, 64)
	return f[1], n, err == nil
}
