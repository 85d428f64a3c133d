package vfs

import "errors"

// ErrLocked: another process, or another Lock of this one, holds the lock.
var ErrLocked = errors.New("vfs: file is locked")
