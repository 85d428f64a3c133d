//go:build !failpoints

package main

// failpoints: a production build has none.
func failpoints() func(name string) error { return nil }
