package main

import (
	"io"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
)

func TestWhatACommandDoesNotTakeIsRefused(t *testing.T) {
	for line, words := range map[string]string{
		"cluster nothing":    `unknown command "nothing" for "firn cluster"`,
		"archive nothing":    `unknown command "nothing" for "firn archive"`,
		"nothing":            `unknown command "nothing" for "firn"`,
		"cluster unregister": "usage: firn cluster unregister BROKER",
		"serve now":          "usage: firn serve",
		"topic":              "",
		"cluster":            "",
	} {
		c := root()
		c.SetOut(io.Discard)
		c.SetArgs(strings.Fields(line))
		err := c.ExecuteContext(t.Context())
		if (err == nil) != (words == "") || err != nil && !strings.Contains(err.Error(), words) {
			t.Errorf("firn %s: %v, want %q", line, err, words)
		}
	}
}

func TestABrokersWordsReplaceTheGeneralOnes(t *testing.T) {
	err := failure("unregister broker 3", kerr.InvalidRequest, "Broker 3 is running")
	if got, want := err.Error(), "unregister broker 3: INVALID_REQUEST: Broker 3 is running"; got != want || !isCode(err, "INVALID_REQUEST") {
		t.Errorf("%q, want %q", got, want)
	}
	for _, text := range []string{"", kerr.UnknownTopicOrPartition.Description} {
		if err := failure("describe t", kerr.UnknownTopicOrPartition, text); !strings.Contains(err.Error(), "no such topic") {
			t.Error(err)
		}
	}
}
