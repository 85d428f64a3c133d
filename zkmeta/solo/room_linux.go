package solo

import (
	"os"
	"syscall"
)

// keepSize is FALLOC_FL_KEEP_SIZE: what is set aside isn't seen in the file's size.
const keepSize = 1

// setAside has the disk keep the first size bytes of f for it, holes and what lies
// beyond its end included.
func setAside(f *os.File, size int64) error {
	return syscall.Fallocate(int(f.Fd()), keepSize, 0, size)
}
