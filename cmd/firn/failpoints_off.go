//go:build !failpoints

package main

import "firn/segment/vfs"

// failpoints: a production build has none.
func failpoints() func(name string) error { return nil }

// faulty: a production build's disks fail by themselves.
func faulty(fs vfs.FS, _ func(name string) error) vfs.FS { return fs }
