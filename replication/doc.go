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
//	replica   Fetched ─ same history? its end counts ─→ high watermark ─→ wake
//	ISR       Propose ─→ written by compare-and-set, fenced ─→ Settle
//	flush     log's OnCounted ─→ high watermark ─→ wake
//
// A Fetcher has replicas follow their leader on another broker: a step machine
// that says what to ask next and takes the answer, and so can be driven over a
// network or a model of one.
//
//	comparing ─ where does our last epoch end with you? ─→ cut ─→ fetching ─→ Replicate …
//
// # Invariants
//
//	R1  What Acked says yes to is on every replica of ISR ∪ joining, and the ISR
//	    is large enough, at the append and again at the ack.
//	R2  An epoch lower than the replica's own is refused; the log remembers it
//	    across restarts.
//	R3  A member counts from when its leader is about to ask for it (Propose) until
//	    its removal, or the refusal, is known; an unknown outcome settles nothing.
//	R4  A leader takes out of the ISR at once who isn't registered any more.
//	R5  A follower cuts its log where its leader's history leaves it, epoch by
//	    epoch, never at the high watermark.
//	S6  A fetch goes out when what is due is flushed: its offset vouches for the log.
//	S7  What must be discarded though it was counted on is given up first.
//	R6  A replica leads only under the registration that the state names.
//	A14 A change of role is taken over only when all of it is done; after an
//	    error the replica serves nothing, and the change may be tried again.
//
// What a crash leaves is the log's matter: a Partition keeps nothing on disk.
package replication
