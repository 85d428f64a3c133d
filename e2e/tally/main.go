// Command tally runs one stage of the tests and keeps count over all of them.
//
//	tally -dir DIR STAGE -- go test -json ./...     run a stage
//	tally -dir DIR STAGE -- any other command       one pass or one failure
//	tally -dir DIR -sum                             the closing lines
//
// It prints what failed and what was skipped, with the reason, and the stage's
// time. The closing lines say once more what failed and why, for who reads only
// the end of a long record; the last is "N passed, N failed, N skipped".
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output, ImportPath string
}

// count is a stage's result, kept in DIR/STAGE.json.
type count struct {
	Passed, Failed, Skipped int
	Seconds                 float64
	Failures                []string // what failed, and its own words for why
}

func main() {
	dir := flag.String("dir", "", "where counts are kept")
	sum := flag.Bool("sum", false, "print the closing line; exit 1 if anything failed")
	flag.Parse()
	if *sum {
		os.Exit(total(*dir))
	}
	args := flag.Args()
	at := slices.Index(args, "--")
	if at != 1 || len(args) < 3 || *dir == "" {
		flag.Usage()
		os.Exit(2)
	}
	c := run(args[0], args[2:])
	b, _ := json.Marshal(c)
	if err := os.MkdirAll(*dir, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, "tally:", err)
		os.Exit(1)
	}
	if err := os.WriteFile(filepath.Join(*dir, args[0]+".json"), b, 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "tally:", err)
		os.Exit(1)
	}
	fmt.Printf("== %s: %d passed, %d failed, %d skipped in %.0f s\n", args[0], c.Passed, c.Failed, c.Skipped, c.Seconds)
	if c.Failed > 0 {
		os.Exit(1)
	}
}

func run(stage string, argv []string) count {
	fmt.Printf("== %s: %s\n", stage, strings.Join(argv, " "))
	start := time.Now()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stderr = os.Stderr
	tests := slices.Contains(argv, "-json")
	if !tests {
		cmd.Stdout = os.Stdout
		c := count{Passed: 1}
		if err := cmd.Run(); err != nil {
			fmt.Printf("FAIL %s: %v\n", stage, err)
			c = count{Failed: 1, Failures: []string{stage}}
		}
		c.Seconds = time.Since(start).Seconds()
		return c
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Printf("FAIL %s: %v\n", stage, err)
		return count{Failed: 1}
	}
	c := read(out)
	if err := cmd.Wait(); err != nil && c.Failed == 0 {
		fmt.Printf("FAIL %s: %v\n", stage, err)
		c.Failed, c.Failures = 1, []string{fmt.Sprintf("%s: %v", stage, err)}
	}
	c.Seconds = time.Since(start).Seconds()
	return c
}

// read counts top-level tests and subtests alike, and a package that fails
// without a failing test (a panic, a build error) as one failure.
func read(r io.Reader) count {
	var c count
	output := map[string][]string{}
	failedIn := map[string]int{}
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 16<<20)
	for sc.Scan() {
		var e event
		if json.Unmarshal(sc.Bytes(), &e) != nil {
			fmt.Println(sc.Text())
			continue
		}
		key := e.Package + " " + e.Test
		switch e.Action {
		case "output", "build-output":
			if e.Action == "build-output" {
				fmt.Print(e.Output)
			}
			output[key] = append(output[key], e.Output)
		case "pass":
			if e.Test != "" {
				c.Passed++
			} else {
				fmt.Print("ok   ", e.Package, "\n")
			}
			delete(output, key)
		case "skip":
			if e.Test != "" {
				c.Skipped++
				fmt.Printf("SKIP %s\n%s", key, strings.Join(output[key], ""))
			}
			delete(output, key)
		case "fail":
			failedIn[e.Package]++
			if e.Test != "" || failedIn[e.Package] == 1 {
				c.Failed++
				c.Failures = append(c.Failures, key+why(output[key]))
			}
			fmt.Printf("FAIL %s\n%s", key, strings.Join(output[key], ""))
			delete(output, key)
		}
	}
	return c
}

// why picks the lines of a test's output that a failure is told in, the last few.
func why(output []string) string {
	const most = 5
	var said []string
	for _, line := range output {
		if strings.Contains(line, "_test.go:") || strings.HasPrefix(line, "panic:") {
			said = append(said, "\n    "+strings.TrimSpace(line))
		}
	}
	return strings.Join(said[max(0, len(said)-most):], "")
}

func total(dir string) int {
	var t count
	var failures []string
	files, _ := filepath.Glob(filepath.Join(dir, "*.json"))
	for _, f := range files {
		var c count
		b, err := os.ReadFile(f)
		if err != nil || json.Unmarshal(b, &c) != nil {
			t.Failed++
			continue
		}
		fmt.Printf("%-12s %5d passed %4d failed %4d skipped %6.0f s\n", strings.TrimSuffix(filepath.Base(f), ".json"), c.Passed, c.Failed, c.Skipped, c.Seconds)
		t.Passed, t.Failed, t.Skipped = t.Passed+c.Passed, t.Failed+c.Failed, t.Skipped+c.Skipped
		failures = append(failures, c.Failures...)
	}
	for _, f := range failures {
		fmt.Println("FAILED", f)
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", t.Passed, t.Failed, t.Skipped)
	if t.Failed > 0 || t.Passed == 0 {
		return 1
	}
	return 0
}
