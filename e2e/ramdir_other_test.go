//go:build !linux

package e2e

import "testing"

// ramDir is a data directory in memory where there is one.
func ramDir(t testing.TB) string { return t.TempDir() }
