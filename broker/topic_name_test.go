package broker

import (
	"strings"
	"testing"
)

func TestTopicNamesThatCanBePartOfAPath(t *testing.T) {
	for _, name := range []string{"a", "A-Z_0.9", "...", "a..b", strings.Repeat("x", maxTopicName), "__consumer_offsets"} {
		if words := checkTopicName(name); words != "" {
			t.Errorf("%q: %s", name, words)
		}
	}
	for _, name := range []string{
		"", ".", "..", "../x", "a/b", `a\b`, "a b", "a\x00", "a\r\nb", "%2e%2e", "ü", "а", "\u202e", "a:b", "a~b", "\xff",
		strings.Repeat("x", maxTopicName+1), strings.Repeat("x", 64<<10),
	} {
		if checkTopicName(name) == "" {
			t.Errorf("%.40q is taken", name)
		}
	}
}
