package scenariotest

import (
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what comes out into testdata; look at the difference before you keep it")

// Play plays each file of testdata/*.txt on a machine of its own: start makes it,
// and what start returns does the commands of a block and tells what came of them.
func Play(t *testing.T, start func(*testing.T) func([]Command) string) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no testdata", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { play(t, file, start(t)) })
	}
}

func play(t *testing.T, file string, run func([]Command) string) {
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for block := range strings.SplitSeq(strings.Trim(string(b), "\n"), "\n\n") {
		in, want, dashes := strings.Cut(block, "\n----")
		got := ""
		if commands := parse(t, in); dashes || len(commands) > 0 {
			got = strings.Trim(run(commands), "\n")
		}
		if want = strings.Trim(want, "\n"); got != want && !*update {
			t.Errorf("%s\ngot:\n%s\nwant:\n%s", in, got, want)
		}
		if got != "" {
			in += "\n----\n" + got
		}
		blocks = append(blocks, in)
	}
	if *update {
		if err := os.WriteFile(file, []byte(strings.Join(blocks, "\n\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// Command is one line: a name and its arguments, some of which are key=value.
type Command struct {
	Name string
	Args []string
	t    testing.TB
}

// Parse reads one command.
func Parse(t testing.TB, line string) Command {
	f := strings.Fields(line)
	return Command{f[0], f[1:], t}
}

func parse(t testing.TB, in string) (out []Command) {
	for line := range strings.SplitSeq(in, "\n") {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			out = append(out, Parse(t, line))
		}
	}
	return out
}

// Value is what the command gives for a key.
func (c Command) Value(key string) (string, bool) {
	for _, a := range c.Args {
		if v, ok := strings.CutPrefix(a, key+"="); ok {
			return v, true
		}
	}
	return "", false
}

// Text is the same, or "".
func (c Command) Text(key string) string {
	v, _ := c.Value(key)
	return v
}

// Number is the same as a number, or 0.
func (c Command) Number(key string) int64 { return Number(c.t, c.Text(key)) }

// Number reads a number; nothing is 0.
func Number(t testing.TB, s string) int64 {
	t.Helper()
	if s == "" {
		return 0
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
