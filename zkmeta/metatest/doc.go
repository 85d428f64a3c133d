// Package metatest is the contract of replication/meta.Store as a test, which
// every implementation passes. It knows none of them.
package metatest
