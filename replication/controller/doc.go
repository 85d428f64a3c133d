// Package controller makes the cluster's decisions: who leads which partition,
// where replicas are placed, when a reassignment ends. Decide is pure: from a
// picture of the cluster to the states that partitions should have. Controller is
// the thin loop around it: it campaigns, keeps the picture current by the change
// notes, and writes what was decided. It knows no log, no network and no protocol.
//
// # An election (R4, R6)
//
// A leader stands as long as its broker is registered in the very registration
// that the state names, and has not given the partition up (S7). Otherwise the
// epoch is raised, and
//
//  1. the first replica that is in the ISR, registered, and still holds what it
//     was counted for, leads; the ISR keeps those of whom that is true. Of several
//     one whose disk is full comes last but one, one that is draining last, here
//     as in 2 and 3;
//  2. else the first such eligible member leads, alone in the ISR;
//  3. else, where the topic allows unclean elections or an operator asks for one,
//     the first live replica;
//  4. else, when all who might have what was committed are back, the one whose log
//     goes furthest; with more than one they are asked, which Plan.Ask is for;
//  5. else nobody leads, and nothing else changes.
//
// 3 and 4 are unclean: they are counted, and may have lost records.
//
// # Who leads without need
//
// A leader that is draining hands over to another in sync. So does one whose disk is
// full, to one that has room: it stays in the ISR, and where nobody has room, it
// leads on. The preferred leader, the first replica, gets its leadership back when an
// operator wishes it, or when too many of its partitions are led by others; only if it
// is in sync, and neither draining nor full.
//
// # A reassignment
//
//	wish     Replicas = new ++ leaving   Adding, Removing     any broker, in the topic's node
//	            │  new ones fetch, their leaders add them to the ISR
//	            ▼  Adding ⊆ ISR, and enough of those that stay
//	end      state: ISR without Removing, a leader that stays, epoch + 1  ┐ one commit
//	         topic: Replicas = new                                        ┘
//
// Taken back, it is a reassignment to what there was before.
//
// # A new controller
//
//	office won ─▶ Sync: how far do the notes go? ─▶ the broker's picture, and the notes since ─▶ Decide
//	                                                └─ a gap, or another session: read everything
//
// Each broker keeps a picture anyway, so that a failover costs what has changed and
// not what there is.
//
// Every write is fenced by the controller epoch and checks what it rests on, so
// that a decision on an old picture is refused, not obeyed. A crash between two
// writes leaves the rest to the next controller, who decides from what it reads.
package controller
