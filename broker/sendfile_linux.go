package broker

import (
	"io"
	"syscall"
)

// sendRange sends up to n bytes of file, from *off on, to the socket, both by
// descriptor, as far as the socket takes them now. again: it takes no more yet.
func sendRange(sock, file int, off *int64, n int) (sent int, again bool, err error) {
	for sent < n {
		k, err := syscall.Sendfile(sock, file, off, n-sent)
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.EAGAIN:
			return sent, true, nil
		case err != nil:
			return sent, false, err
		case k == 0:
			return sent, false, io.ErrUnexpectedEOF // the file is shorter than we said
		}
		sent += k
	}
	return sent, false, nil
}

const haveSendfile = true
