package broker

import (
	"log/slog"
	"net"
)

// minSendBuffer is the smallest send buffer that doesn't stall: one below what
// loopback carries in a segment waits for a timer each time.
const minSendBuffer = 64 << 10

// unsentLimit is how much may wait in a socket unsent. Little enough that it is
// still in the processor's cache when it is sent, which is worth 40 % of a large
// fetch's speed; and unlike a small send buffer it doesn't cap a far client.
const unsentLimit = 16 << 10

// tune sets a connection's socket options. What fails costs speed, not more.
func tune(c net.Conn, n *Network) {
	tc, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	if n.SendBufferBytes > 0 {
		_ = tc.SetWriteBuffer(n.SendBufferBytes)
	}
	if n.ReceiveBufferBytes > 0 {
		_ = tc.SetReadBuffer(n.ReceiveBufferBytes)
	}
	if raw, err := tc.SyscallConn(); err == nil {
		limitUnsent(raw)
	}
}

// checkSendBuffer raises a send buffer that would stall.
func checkSendBuffer(n *Network, log *slog.Logger) {
	if n.SendBufferBytes > 0 && n.SendBufferBytes < minSendBuffer {
		log.Warn("socket.send.buffer.bytes would stall connections; raised", "bytes", n.SendBufferBytes, "raised", minSendBuffer)
		n.SendBufferBytes = minSendBuffer
	}
}
