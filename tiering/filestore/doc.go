// Package filestore keeps objects in a directory: an archive on a local disk or
// a mounted share. It implements objstore.Store on a vfs.FS and knows nothing of
// what the objects mean.
//
//	<dir>/<key>                 an object; its key's elements are directories
//	<dir>/.firn-tmp/<id>-<n>    an object on its way, invisible
//	<dir>/.firn-tmp/<id>.lock   held by the process that writes <id>-*
//	<dir>/.firn-tmp/write.lock  held while Create or Swap looks and then writes
//	<dir>/.firn-tmp/begin.lock  held while a process takes its own lock and sweeps
//
// A Put writes a temporary file, syncs it, renames it and syncs both
// directories; the rename is when the object appears, the last sync when Put may
// say so. Create and Swap do the same under a lock that the kernel gives back
// when its process dies.
//
// What a crash leaves: a temporary file, removed by the next process that
// writes, or an object that nobody was told of. A failed sync is an error like
// any other here: nothing was promised, and the caller writes under a new key.
//
// Locks are advisory and per host: on a share, conditional writes exclude each
// other across hosts only as far as the share's locks do.
package filestore
