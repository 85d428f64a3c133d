//go:build !linux

package broker

import "errors"

// haveSendfile: elsewhere than on Linux files pass through memory.
const haveSendfile = false

func sendRange(sock, file int, off *int64, n int) (sent int, again bool, err error) {
	return 0, false, errors.ErrUnsupported
}
