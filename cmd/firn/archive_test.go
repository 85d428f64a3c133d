package main

import (
	"os"
	"path/filepath"
	"testing"
)

// Reading verbs make nothing, whatever the broker's own URL says.
func TestReadingAnArchiveMakesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "nope")
	for _, url := range []string{"file://" + dir + "?create=true", "file://" + dir} {
		at := archiveAt{url: url}
		if _, err := at.store(t.Context()); err == nil {
			t.Errorf("%s was opened", url)
		}
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the directory was made")
	}
	for in, want := range map[string]string{
		"s3://b/p?create=true&region=x":     "s3://b/p?region=x",
		"s3://b/p?region=x&create=true":     "s3://b/p?region=x&",
		"s3://b?endpoint=http://h&create=1": "s3://b?endpoint=http://h&",
		"s3://b":                            "s3://b",
	} {
		if got := createParameter().ReplaceAllString(in, "$1"); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}
