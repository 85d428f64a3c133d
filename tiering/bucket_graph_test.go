package tiering

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"firn/segment"
)

// TestLineage: which manifests count, drawn as "key: predecessor epoch".
func TestLineage(t *testing.T) {
	for _, c := range []struct {
		name          string
		nodes         string // "key<predecessor@epoch", seq by order; "?" for one that is gone
		leaves, forks string
	}{
		{"nothing", "", "", ""},
		{"one", "a@1", "a", ""},
		{"a chain", "a@1 b<a@1 c<b@3", "c", ""},
		{"old ones deleted", "x<?@4 y<x@4", "y", ""},
		{"a zombie beside its successor", "a@1 z<a@1 b<a@2", "b", "z"},
		{"the zombie went on for long", "a@1 z<a@1 zz<z@1 zzz<zz@1 b<a@2", "b", "zzz"},
		{"the successor of the zombie's branch", "a@1 z<a@1 b<a@2 c<z@3", "c", "b"},
		{"one leader, unsure of its pointer", "a@1 b<a@2 c<a@2", "b c", ""},
		{"unsure, then sure", "a@1 b<a@2 c<a@2 d<c@2", "b d", ""},
		{"unsure, then another leader", "a@1 b<a@2 c<a@2 d<c@3", "d", "b"},
		{"fallen apart", "a@1 b<a@1 y<?@5 z<y@5", "z", "b"},
		{"fallen apart in one epoch", "a@1 b<a@1 y<?@1 z<y@1", "b z", ""},
	} {
		var nodes []manifestNode
		for i, s := range strings.Fields(c.nodes) {
			n := manifestNode{crc: 7, Manifest: &Manifest{Seq: int64(i)}}
			s, epoch, _ := strings.Cut(s, "@")
			fmt.Sscan(epoch, &n.Epoch)
			n.key, n.PrevKey, _ = strings.Cut(s, "<")
			if n.PrevKey != "" {
				n.PrevCRC = 7
			}
			nodes = append(nodes, n)
		}
		names := func(nodes []manifestNode) string {
			var keys []string
			for _, n := range nodes {
				keys = append(keys, n.key)
			}
			slices.Sort(keys)
			return strings.Join(keys, " ")
		}
		for range 2 { // whatever the order in which they are listed
			l := resolveLineage(nodes)
			if names(l.leaves) != c.leaves || names(l.forks) != c.forks {
				t.Errorf("%s (%s): leaves %q, forks %q, want %q, %q", c.name, c.nodes, names(l.leaves), names(l.forks), c.leaves, c.forks)
			}
			slices.Reverse(nodes)
		}
	}
}

func TestLineageByChecksum(t *testing.T) {
	a := manifestNode{key: "a", crc: 1, Manifest: &Manifest{Epoch: 1}}
	b := manifestNode{key: "b", crc: 2, Manifest: &Manifest{Epoch: 1, PrevKey: "a", PrevCRC: 99}}
	l := resolveLineage([]manifestNode{a, b})
	if len(l.leaves) != 2 || len(l.mismatched) != 1 || l.mismatched[0].key != "b" {
		t.Errorf("%+v", l)
	}
}

// entriesOf reads "0-100 100-200:50-200": offsets served, and after a colon
// those of the file.
func drawnEntries(s string, id uint64) []Entry {
	var list []Entry
	for f := range strings.FieldsSeq(s) {
		var e Entry
		served, file, other := strings.Cut(f, ":")
		fmt.Sscanf(served, "%d-%d", &e.Base, &e.End)
		e.FileBase = e.Base
		if other {
			fmt.Sscanf(file, "%d-%d", &e.FileBase, &e.End)
		}
		e.ID = id
		e.Epochs = epochsOf([]segment.EpochStart{{Epoch: 1, Start: 0}, {Epoch: 2, Start: 150}}, e.Base, e.End)
		list = append(list, e)
	}
	return list
}

func TestUnite(t *testing.T) {
	for _, c := range []struct {
		name   string
		leaves []string // "logStart | entries", the preferred first
		broken string   // entries that can't be read, by what they serve
		want   string
	}{
		{"one", []string{"0 | 0-100 100-200"}, "", "0 | 0-100 100-200"},
		{"the preferred leaf's, where both have it", []string{"0 | 0-100 100-200 200-300", "0 | 0-100 100-200"}, "", "0 | 0-100a 100-200a 200-300a"},
		{"longer together", []string{"100 | 100-200 200-300", "0 | 0-100 100-200"}, "", "0 | 0-100b 100-200a 200-300a"},
		{"what retention deleted stays gone", []string{"100 | 100-200 200-300", "0 | 0-50 50-100 100-200"}, "0-50", "50 | 50-100b 100-200a 200-300a"},
		{"all of it deleted", []string{"100 | 100-200", "0 | 0-50 50-100"}, "50-100", "100 | 100-200a"},
		{"a lost segment above is kept, and answered for", []string{"0 | 0-100 100-200 200-300", "0 | 0-100"}, "100-200", "0 | 0-100a 100-200a 200-300a"},
		{"log start inside an entry", []string{"150 | 100-200 200-300", "120 | 100-200"}, "", "120 | 100-200a 200-300a"},
		{"other borders", []string{"0 | 0-100 100-300", "0 | 0-150 150-200"}, "", "0 | 0-100a 100-300a"},
		{"other borders below", []string{"150 | 150-300", "0 | 0-100 100-200"}, "", "0 | 0-100b 100-200b 200-300:150-300a"},
		{"nothing archived", []string{"70 |", "50 |"}, "", "70 |"},
		{"all deleted by retention", []string{"200 |", "0 | 0-100 100-200"}, "0-100 100-200", "200 |"},
	} {
		var leaves []leaf
		for i, s := range c.leaves {
			start, list, _ := strings.Cut(s, "|")
			l := leaf{Manifest: &Manifest{}, all: drawnEntries(list, uint64('a'+i))}
			fmt.Sscan(start, &l.LogStart)
			l.ArchivedEnd = l.LogStart
			if n := len(l.all); n > 0 {
				l.ArchivedEnd = l.all[n-1].End
			}
			leaves = append(leaves, l)
		}
		broken := strings.Fields(c.broken)
		start, entries := unite(leaves, func(e *Entry) bool {
			return !slices.Contains(broken, fmt.Sprintf("%d-%d", e.Base, e.End))
		})
		got := fmt.Sprint(start, " |")
		for i, e := range entries {
			got += fmt.Sprintf(" %d-%d", e.Base, e.End)
			if e.FileBase != e.Base {
				got += fmt.Sprintf(":%d-%d", e.FileBase, e.End)
			}
			if len(leaves) > 1 {
				got += string(rune(e.ID))
			}
			if i > 0 && e.Base != entries[i-1].End {
				t.Errorf("%s: a hole or an overlap at %d", c.name, e.Base)
			}
			if e.Epochs[0].Start > e.Base || e.Epochs[len(e.Epochs)-1].Start >= e.End {
				t.Errorf("%s: epochs %v of [%d, %d)", c.name, e.Epochs, e.Base, e.End)
			}
		}
		if got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}
