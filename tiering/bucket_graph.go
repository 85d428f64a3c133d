package tiering

import (
	"cmp"
	"slices"
)

// The manifests of a partition, and which of them counts when there is no
// pointer to say so. Pure: what was read goes in, a choice comes out.

// manifestNode is a manifest as it lies in the bucket.
type manifestNode struct {
	key  string
	size int64
	crc  uint32
	*Manifest
}

// lineage is what the predecessor graph says.
type lineage struct {
	// leaves are those that count: no manifest follows them, and none of the
	// others reaches a higher epoch. One, unless their leader could not learn
	// whether it had moved the pointer; the one to prefer comes first.
	leaves []manifestNode
	// forks are the leaves that don't: left by leaders that were fenced off.
	forks []manifestNode
	// mismatched name a predecessor that is there, but is another.
	mismatched []manifestNode
	// The highest seen anywhere, -1 for none.
	maxEpoch int32
	maxSeq   int64
}

// resolveLineage finds the leaves. The branch that reaches the highest epoch
// wins whole: a zombie's branch ends in a lower one, and what it names was
// archived again by its successor (T6, D27).
func resolveLineage(nodes []manifestNode) lineage {
	l := lineage{maxEpoch: -1, maxSeq: -1}
	crcs := make(map[string]uint32, len(nodes))
	followed := make(map[string]bool, len(nodes))
	for _, n := range nodes {
		crcs[n.key] = n.crc
		l.maxEpoch, l.maxSeq = max(l.maxEpoch, n.Epoch), max(l.maxSeq, n.Seq)
	}
	for _, n := range nodes {
		if n.PrevKey == "" {
			continue
		}
		if crc, ok := crcs[n.PrevKey]; ok && crc != n.PrevCRC {
			l.mismatched = append(l.mismatched, n)
			continue
		}
		followed[n.PrevKey] = true
	}
	for _, n := range nodes {
		switch {
		case followed[n.key]:
		case n.Epoch == l.maxEpoch:
			l.leaves = append(l.leaves, n)
		default:
			l.forks = append(l.forks, n)
		}
	}
	slices.SortFunc(l.leaves, func(a, b manifestNode) int {
		return cmp.Or(cmp.Compare(b.ArchivedEnd, a.ArchivedEnd), cmp.Compare(b.Seq, a.Seq), cmp.Compare(a.key, b.key))
	})
	slices.SortFunc(l.forks, func(a, b manifestNode) int { return cmp.Compare(a.key, b.key) })
	return l
}

// leaf is a manifest with all its entries, those in pages included.
type leaf struct {
	*Manifest
	all []Entry
}

// unite makes one list of what the leaves of one epoch name, the preferred leaf
// first. From the highest of their log starts on each leaf is whole, so the
// first leaf covers what the others do. Below, one of them may have deleted
// objects: the log start goes down towards the lowest only as far as verifies
// says of each entry that it can be read.
func unite(leaves []leaf, verifies func(*Entry) bool) (logStart int64, entries []Entry) {
	low, high, end := leaves[0].LogStart, leaves[0].LogStart, int64(0)
	for _, l := range leaves {
		low, high, end = min(low, l.LogStart), max(high, l.LogStart), max(end, l.ArchivedEnd)
	}
	logStart = high
	for logStart > low {
		e := serving(leaves, logStart-1, verifies)
		if e == nil {
			break
		}
		logStart = max(e.Base, low)
	}
	for at := logStart; at < end; {
		check := verifies
		if at >= high {
			check = nil
		}
		e := serving(leaves, at, check)
		if e == nil {
			break // nothing is archived from here on
		}
		next := *e
		if len(entries) > 0 && next.Base < at { // D28: an entry serves from where the one before it ends
			next.Base, next.Epochs = at, epochsOf(next.Epochs, at, next.End)
		}
		entries = append(entries, next)
		at = next.End
	}
	return logStart, entries
}

// serving is the entry of the first leaf that serves offset and passes
// verifies, which may be nil.
func serving(leaves []leaf, offset int64, verifies func(*Entry) bool) *Entry {
	for _, l := range leaves {
		e := findEntry(l.all, offset)
		if e != nil && e.Base <= offset && (verifies == nil || verifies(e)) {
			return e
		}
	}
	return nil
}
