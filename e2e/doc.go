// Package e2e tests firn as its users meet it: real processes, real clients, a
// real object store, and faults. It also holds the rules of the house (which
// package may import which), the load harness (bench) and the checker.
package e2e
