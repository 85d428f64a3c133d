// Package group is the classic consumer group as pure code: its members, its
// rebalances, its committed offsets, and the records that it is remembered by.
//
// It knows no connection, no log and no clock. Inputs are method calls with the
// time as an argument; what they lead to comes back as Effects: replies to
// requests that have been waiting, and records to write. One Group is for one
// goroutine at a time.
//
//	         Join                    all joined, or the time is up
//	Empty ─────────▶ Preparing ────────────────────────▶ Completing
//	  ▲              Rebalance ◀──────────────────────── Rebalance
//	  │  nobody         ▲        Join, Leave, timeout         │ the leader's Sync,
//	  │  joined         │                                     │ written
//	  └─────────────────┤                                     ▼
//	                    └───────────────────────────────── Stable
//	                      Join, Leave, timeout
//
// A request that must wait is known by its Ticket. Every ticket is answered
// exactly once: by a reply, or by Abandon.
//
// # Records
//
// A group lives in one partition of __consumer_offsets, as Kafka writes it
// (strings, fields and versions are Kafka's, read and written by kmsg):
//
//	key                                      value
//	int16 1  group, topic, partition         OffsetCommitValue v4 (read: v0–v4)
//	int16 2  group                           GroupMetadataValue v3 (read: v0–v4)
//
// A null value deletes. Keys of other versions belong to other kinds of groups
// and are skipped. The last record of a key counts, so that compaction may drop
// the others, and a deletion may be all that is left of what it deletes.
//
// # Invariants
//
//   - A generation's assignment is handed out only once it is written (F2): a new
//     coordinator knows every generation that a member may have seen whole.
//   - Of a generation, only its members commit (F3): CheckCommit.
//   - An offset expires only while nobody uses it (F4): Expire.
//   - A crash leaves what was written: a group of the last written generation, in
//     state Stable, whose members prove themselves by heartbeat or are removed.
package group
