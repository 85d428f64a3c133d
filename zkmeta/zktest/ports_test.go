package zktest

import (
	"fmt"
	"net"
	"runtime"
	"slices"
	"testing"
)

// TestPortsAreKept: nobody who asks for any port is given one of ours, and who names
// it has it, again and again.
func TestPortsAreKept(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("a bound socket keeps a port on Linux")
	}
	ours := Ports(t, 500)
	for range 2000 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		l.Close()
		if slices.Contains(ours, port) {
			t.Fatalf("port %d was given to another", port)
		}
	}
	for range 2 {
		for _, port := range ours {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			if err != nil {
				t.Fatal(err)
			}
			l.Close()
		}
	}
}
