// Package vfs is the few file-system calls that firn makes, as an interface, so
// that tests can crash and break the disk between any two of them. It knows
// nothing of logs.
//
//	OS      the operating system's
//	Mem     in memory; CrashClone is what a power loss leaves of it, OnOp tells
//	        each change, so that a test can crash after every one
//	Inject  any of them, with errors before, after and in the midst of calls,
//	        failed fsyncs that cannot be repaired, and a disk that fills up
//
// What a crash leaves, and what Mem therefore takes at its word:
//
//	bytes and size of a file       since its Sync
//	a name in a directory          since that directory's SyncDir, and so for
//	                               a directory made by MkdirAll in its parent
//	a rename within a directory    wholly or not at all
//	a rename between directories   both synced; before that the file is in one
//	                               of the two or in both
//	everything else                any part of it, in any order, writes in
//	                               whole sectors of 512 bytes
package vfs
