// Package zkmeta keeps a cluster's metadata in ZooKeeper: the contract of
// replication/meta on an ensemble. It knows of the tree's meaning only where the
// ephemeral nodes of brokers stand, and it alone knows the client library.
//
// # The tree
//
// Everything lies below the chroot of zookeeper.connect. Besides the nodes of
// replication/meta there are the change notes:
//
//	/firn/changes                          the number of the current generation
//	/firn/changes/<generation>/<number10>  a note: what one commit has changed
//
// A commit with a note is one Multi: a check of /firn/changes' version, the
// operations, and the creation of a sequential node. ZooKeeper numbers these
// without a gap, whatever is deleted, up to 2³¹; before 2³⁰ TrimNotes begins
// another generation, and who had the older one in mind is refused by the check.
//
// # Sessions
//
// A Store lives through many sessions, and each session has a client of its own:
//
//	┌─▶ client ─▶ session ─▶ auth, Sync, watches ─▶ current ─┐
//	└──── next ◀── lost closed ◀── expired, or no server ◀───┘
//	                               for three timeouts
//
// The library would open the next session by itself, and deliver in it what was
// queued in the last. Here the dialer refuses once the session is over. It also
// bounds the handshake to a second, so that a stopped server doesn't hold us until
// the session is lost. A client that no server accepts gives way to a fresh one,
// for it may know of transactions that the servers have lost.
//
// Before the first session makes anything, a chroot is refused that was forgotten,
// lies inside another cluster's tree, or is Apache Kafka's (place.go).
//
// While there is no session, Session shows the last one with lost closed, and
// requests wait for the next, until their context or a session timeout ends.
//
// # Invariants
//
//   - Z1: the first Changes of a session is a gap. A session becomes current only
//     after a Sync, and with its watches armed: whatever happens later is told.
//     ZooKeeper's zxids see to it that a session never reads an older state.
//   - Z2: a commit is one Multi of at most 500 operations, sent at most once, and in
//     one session. The operation that was refused is named.
//   - Z3: a commit that was sent and not answered has an unknown outcome, also when
//     its context ended.
//
// # What a crash leaves
//
// ZooKeeper applies a Multi whole or not at all. A client that goes without a word
// leaves its ephemeral nodes until its session times out.
package zkmeta
