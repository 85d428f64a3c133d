package broker

import "syscall"

const tcpNotsentLowat = 25 // TCP_NOTSENT_LOWAT of <linux/tcp.h>

func limitUnsent(raw syscall.RawConn) {
	_ = raw.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpNotsentLowat, unsentLimit)
	})
}
