//go:build !linux && !darwin

package broker

import "syscall"

func limitUnsent(syscall.RawConn) {}
