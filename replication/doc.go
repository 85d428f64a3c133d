// Package replication keeps the replicas of a partition: who leads, who follows,
// how far is committed. It knows no network, no tiering and no ZooKeeper; of a
// log it knows what the interface Log says.
//
// A Partition is one replica. The metadata store says what it is to be (Become);
// a leader then appends, tells clients how far they may read, and acknowledges.
//
//	produce   Append ─ leader of this epoch? ISR large enough? ─→ log.Append
//	                 ─→ high watermark, if no other replica counts ─→ wake
//	          Acked? no ─→ Waiter, until the high watermark has passed
//	fetch     Read ─ epoch as the caller knows it? ─→ log.Read
//	          nothing yet ─→ Waiter, until its min bytes are visible
//	flush     log's OnCounted ─→ high watermark ─→ wake
//
// # Invariants
//
//	R1  What Acked says yes to is on every replica of ISR ∪ joining, and the ISR
//	    is large enough, at the append and again at the ack.
//	R2  An epoch lower than the replica's own is refused; the log remembers it
//	    across restarts.
//	R6  A replica leads only under the registration that the state names.
//	A14 A change of role is taken over only when all of it is done; after an
//	    error the replica serves nothing, and the change may be tried again.
//
// What a crash leaves is the log's matter: a Partition keeps nothing on disk.
package replication
