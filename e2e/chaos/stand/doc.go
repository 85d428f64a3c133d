// Package stand starts a cluster as plain processes on loopback, without a test
// around them: brokers, an object store, ZooKeeper. A stand lies in a directory
// and can be stopped and set up again there, with the same ports, by another
// process: that is what makes long runs resumable.
package stand
