// Package workload is the clients of a run: producers with and without
// idempotence and at acks=1, readers at the end and in the archive, a group that
// commits, a watcher of leaders and offsets. Whatever they do and see goes into
// one history a partition (e2e/checker).
//
// A producer that gets no certain answer is retired and another takes its place,
// so that one name's records are always in order.
package workload
