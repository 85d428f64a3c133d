package main

import (
	"slices"
	"strings"
	"testing"
)

// TestFailuresKeepTheirWords: the end of a record names each failing test with
// what it said, and not its package besides.
func TestFailuresKeepTheirWords(t *testing.T) {
	c := read(strings.NewReader(`
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:3: 2 records, want 3\n"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestB"}
{"Action":"fail","Package":"p"}
{"Action":"output","Package":"q","Output":"panic: no\n"}
{"Action":"fail","Package":"q"}
`[1:]))
	want := []string{"p TestA\n    a_test.go:3: 2 records, want 3", "q \n    panic: no"}
	if c.Passed != 1 || c.Failed != 2 || !slices.Equal(c.Failures, want) {
		t.Errorf("%d passed, %d failed, %q", c.Passed, c.Failed, c.Failures)
	}
}
