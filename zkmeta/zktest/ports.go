package zktest

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
)

// Ports finds n ports of 127.0.0.1 for servers that the test starts, ends and starts
// again; they are held until the test ends.
func Ports(t testing.TB, n int) []int {
	t.Helper()
	ports, release, err := HoldPorts(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return ports
}

// HoldPorts finds n ports of 127.0.0.1 that nobody listens on. A socket stays bound to
// each until release, and does not listen: so Linux gives it to nobody who asks for any
// port, while a server that names it may have it, if it sets SO_REUSEADDR as servers do.
// Elsewhere the ports are just free now.
func HoldPorts(n int) (ports []int, release func(), err error) {
	var held []int
	release = func() {
		for _, fd := range held {
			_ = syscall.Close(fd) // nothing was written to it
		}
		held = nil
	}
	for range n {
		fd, port, err := bound()
		if err != nil {
			release()
			return nil, nil, fmt.Errorf("hold a port: %w", err)
		}
		ports, held = append(ports, port), append(held, fd)
	}
	if runtime.GOOS != "linux" {
		release()
	}
	return ports, release, nil
}

// bound is a socket that is bound to a port of the kernel's choice.
func bound() (fd, port int, err error) {
	syscall.ForkLock.RLock()
	fd, err = syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return 0, 0, err
	}
	if err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	var at syscall.Sockaddr
	if err == nil {
		at, err = syscall.Getsockname(fd)
	}
	if err != nil {
		syscall.Close(fd)
		return 0, 0, err
	}
	return fd, at.(*syscall.SockaddrInet4).Port, nil
}
