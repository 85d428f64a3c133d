// Package isr is the pure heart of replication: who is in sync with the leader,
// and how far the log is committed. It knows no log, no network, no store and no
// clock: the leader tells it what happened and acts on what it says.
//
// # What counts
//
//	ISR        the members that the metadata store names: what was read back,
//	           never what we have asked for
//	joining    whom we have asked to add, until the store's answer is known
//	eligible   who was in the ISR when it fell below min.insync.replicas, and
//	           may lead again before a last survivor that lost its data
//
// The high watermark is the lowest counted end over ISR ∪ joining:
//
//	R1  It stands still while |ISR| < min(min.insync, replicas), and while
//	    anybody is eligible.
//	R3  A member counts from when we ask to add it until its removal is read
//	    back: the store may have added it before we hear so, and may still name
//	    it after we have asked to remove it.
//
// It never goes back. A Tracker belongs to one leader in one epoch; the next
// leadership begins with a new one.
package isr
