package main

import (
	"os"
	"path/filepath"
	"strings"
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
}

// What isn't in the archive, or can't be written, is an error that says so.
func TestArchiveVerbsSayWhatIsNotThere(t *testing.T) {
	archive := "file://" + t.TempDir()
	set := map[string]string{
		"archive.url": archive, "archive.upload.max.interval.ms": "1000", "archive.upload.min.bytes": "1",
		"remote.log.manager.task.interval.ms": "200", "log.retention.check.interval.ms": "200",
	}
	data := t.TempDir()
	writeOne(t, data, set, "events", "one")
	waitArchived(t, data, set, "events", 1)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		say  string // "": it works
	}{
		{"ls events:0", ""},
		{"ls events:77", "no partition 77 of events"},
		{"ls nope", "no topic nope, but events"},
		{"verify events:0", ""},
		{"verify events:77", "no partition 77 of events"},
		{"verify nope", "no topic nope, but events"},
		{"extract events:77 --to " + t.TempDir(), "no partition 77 of events"},
		{"extract events --from 1000000 --to " + t.TempDir(), ""},
		{"extract events --from 1000000 --to " + file + "/x", "not a directory"},
		{"extract events --to " + file + "/x", "not a directory"},
	} {
		cmd := root()
		cmd.SetArgs(append(append([]string{"archive"}, strings.Fields(c.args)...), "--archive", archive))
		err := cmd.ExecuteContext(t.Context())
		if c.say == "" && err != nil || c.say != "" && (err == nil || !strings.Contains(err.Error(), c.say)) {
			t.Errorf("archive %s: %v, want %q", c.args, err, c.say)
		}
	}
}

// A restore takes what is there: it makes no store, and advises nobody to.
func TestRestoreOfWhatIsNotThereMakesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "nope")
	cmd := root()
	cmd.SetArgs([]string{"archive", "restore", "--archive", "file://" + dir + "?create=true", "--data", t.TempDir()})
	if err := cmd.ExecuteContext(t.Context()); err == nil || strings.Contains(err.Error(), "create=true") || !strings.Contains(err.Error(), "no archive in it") {
		t.Errorf("restored from nothing: %v", err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the directory was made")
	}
}
