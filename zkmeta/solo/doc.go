// Package solo keeps a cluster's metadata for a broker that is alone, in one
// bbolt file: the contract of replication/meta without ZooKeeper. It knows no
// paths and no meaning.
//
// # The file
//
//	bucket "firn"       format   uint32, the version of what is described here
//	                    rev      uint64, the last commit's Rev
//	                    session  uint64, the last session
//	                    moved    text, where the metadata went, if it did
//	bucket "nodes"      parent path, 0, name → version uint32, rev uint64,
//	                    session uint64 (0: not ephemeral), value
//	bucket "ephemerals" path → nothing: the nodes of the session
//
// All integers are big-endian. The key of a node begins with its parent's path,
// so that the children of a node lie side by side, sorted, without their own
// children between them.
//
// A session is one opening of the file: it ends with the process, and its
// ephemeral nodes go when the file is opened again. The lock on the file makes
// sure that there is one session at a time. Change notes are kept in memory,
// since no other process could have missed one; their numbers go on from the
// Rev at which the file was opened, so that none is used twice.
//
// # What a crash leaves
//
// bbolt writes pages beside those in use, syncs them, then writes and syncs the
// page that names them: a commit is there whole or not at all. When that fails
// its outcome is unknown (Z3), and the store refuses all further commits: a
// later sync could succeed without having written what failed before. A full
// disk is another matter: it shows before the page that names the others is
// written, so that nothing has happened, and commits go on when there is space.
// While there is some, the disk is had to keep 4 MiB for the next commits (Linux).
package solo
