package meta

import (
	"fmt"
	"maps"
	"slices"
)

// A reassignment under way stands in the topic's node:
//
//	Replicas  the new ones in their order, then those that leave
//	Adding    of the new ones, those that were not replicas before it began
//	Removing  those that leave
//
// It ends, by FinishMoves, when all of Adding are in sync.

// Moving: a reassignment of partition p is under way.
func (t Topic) Moving(p int32) bool { return len(t.Adding[p]) > 0 || len(t.Removing[p]) > 0 }

// Target is what the replicas of partition p will be when a reassignment under
// way has ended; otherwise what they are.
func (t Topic) Target(p int32) []int32 { return without(t.Replicas[p], t.Removing[p]) }

// Reassign is t with partition p on its way to the replicas target, whatever it
// was on its way to before. A mere change of order is done with it.
func (t Topic) Reassign(p int32, target []int32) Topic {
	leave := without(t.Replicas[p], target)
	add := slices.DeleteFunc(slices.Clone(target), func(id int32) bool {
		return slices.Contains(t.Replicas[p], id) && !slices.Contains(t.Adding[p], id)
	})
	return t.moving(p, slices.Concat(target, leave), add, leave)
}

// Cancel is t with the reassignment of partition p on its way back: those that
// were being added leave, those that were leaving stay.
func (t Topic) Cancel(p int32) Topic {
	leave := t.Adding[p]
	stay := without(t.Replicas[p], leave)
	if len(stay) == 0 { // never; but a partition is not left without replicas
		return t
	}
	return t.moving(p, slices.Concat(stay, leave), nil, leave)
}

// moved is t with the reassignment of partition p ended.
func (t Topic) moved(p int32) Topic { return t.moving(p, t.Target(p), nil, nil) }

// moving sets all three lists of partition p. What t shares with others stays.
func (t Topic) moving(p int32, replicas, adding, removing []int32) Topic {
	t.Replicas = slices.Clone(t.Replicas)
	t.Replicas[p] = replicas
	t.Adding, t.Removing = withMove(t.Adding, p, adding), withMove(t.Removing, p, removing)
	return t
}

func withMove(moves map[int32][]int32, p int32, ids []int32) map[int32][]int32 {
	if moves = maps.Clone(moves); moves == nil {
		moves = map[int32][]int32{}
	}
	delete(moves, p)
	if len(ids) > 0 {
		moves[p] = ids
	}
	if len(moves) == 0 {
		return nil
	}
	return moves
}

func without(ids, gone []int32) []int32 {
	return slices.DeleteFunc(slices.Clone(ids), func(id int32) bool { return slices.Contains(gone, id) })
}

// FinishMoves ends the reassignments of partitions of t in one write: each gets
// its next state, which names none that leave, and the topic the replicas that
// stay. What is in flight of the present leaders is refused by it, since it was
// made under the old replicas. It takes as many of ended as fit into a commit,
// from the first on, and returns how many.
func FinishMoves(t Topic, ended []StateChange) (w Write, n int, err error) {
	room := MaxBytes - len(encodeTopic(t)) - 8<<10
	for _, c := range ended {
		one, err := ChangeState(c)
		if err != nil {
			return Write{}, 0, err
		}
		for _, o := range one.Ops {
			room -= len(o.Path) + len(o.Value) + 16 // the last is for the note
		}
		for _, o := range one.Checks {
			room -= len(o.Path)
		}
		if n > 0 && (room < 0 || n == MaxOps/4) {
			break
		}
		t = t.moved(c.Partition)
		w.Checks, w.Ops = append(w.Checks, one.Checks...), append(w.Ops, one.Ops...)
		w.Note.merge(one.Note)
		n++
	}
	if n == 0 {
		return Write{}, 0, fmt.Errorf("meta: no reassignment of %s to end", t.Name)
	}
	all := SetTopic(t)
	w.Checks, w.Ops = dedupe(append(w.Checks, all.Checks...)), append(w.Ops, all.Ops...)
	w.Note.merge(all.Note)
	return w, n, nil
}

// dedupe leaves each check once.
func dedupe(checks []Op) []Op {
	seen := make(map[checkKey]bool, len(checks))
	return slices.DeleteFunc(checks, func(o Op) bool {
		key := checkKey{o.Path, o.Version}
		was := seen[key]
		seen[key] = true
		return was
	})
}
