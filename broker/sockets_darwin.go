package broker

import "syscall"

const tcpNotsentLowat = 0x201 // TCP_NOTSENT_LOWAT of <netinet/tcp.h>

func limitUnsent(raw syscall.RawConn) {
	_ = raw.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpNotsentLowat, unsentLimit)
	})
}
