package broker

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestTheTableOfAPIs: what is advertised changes on purpose only. The file lists
// key, name, and the oldest and newest version.
func TestTheTableOfAPIs(t *testing.T) {
	var b strings.Builder
	last := int16(-1)
	for _, a := range sortedAPIs() {
		key := int16(a.key)
		fmt.Fprintf(&b, "%3d %-24s %2d..%d\n", key, strings.ReplaceAll(kmsg.NameForKey(key), " ", ""), a.min, a.max)
		if key == last {
			t.Errorf("key %d is there twice", key)
		}
		last = key
		if a.min < 0 || a.min > a.max || kmsg.RequestForKey(key).MaxVersion() < a.max {
			t.Errorf("key %d: versions %d to %d, decoded up to %d", key, a.min, a.max, kmsg.RequestForKey(key).MaxVersion())
		}
	}
	const file = "testdata/apis.txt"
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("the table of APIs is\n%s\nwant\n%s\nUPDATE=1 writes %s", &b, want, file)
	}
}

func sortedAPIs() []api {
	all := apis()
	slices.SortFunc(all, func(a, b api) int { return int(a.key) - int(b.key) })
	return all
}
