// Package vfs is the few file-system calls that firn makes, as an interface, so
// that tests can crash and break the disk between any two of them.
package vfs
