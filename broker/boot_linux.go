package broker

import (
	"os"
	"strings"
)

// bootID identifies this boot of the machine; "" if it can't be told. While it
// stays the same, a process that died has left its writes in the page cache.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
