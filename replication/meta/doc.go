// Package meta is what a cluster must remember: the value types, where they are
// kept, which writes belong together, and the contract of the store that keeps them.
package meta
