// Command sim runs a cluster in one process, from one seed: production code on a
// model of everything that it runs on.
//
//	go run ./e2e/sim -seeds 1000 -from 1     that many seeds, with totals and seeds/s
//	go run ./e2e/sim -count 1000             as many as it takes for 1 000 to count
//	go run ./e2e/sim -seed 42 -trace         one again, with what happens (-disk: on disks, too)
//	go run ./e2e/sim -seed 42 -shrink        without the faults that its failure doesn't take
//	go test ./e2e/sim -run Mutant -seeds 400 a fixed set, by exit code: for mutants
//
// # What is real
//
// replication.Partition, isr, the leader's proposals, the Fetcher, the lease;
// controller.Run with Decide; meta's writes, images and registration; segment's
// logs, and when a disk is full; tiering with uploader, manifests, retention,
// eviction, sweeps, cold reads and their cache. process.go, start.go, roles.go and
// leader.go hold them together as package broker does, without the protocol. The
// pointer's fence is broker's own; who may fetch is the same few lines again.
//
// # What is a model
//
//	clock       testing/synctest: package time, stopped while anybody runs
//	sched       every request on its way and every fault is an event; one at a time
//	            is let go, the next when every goroutine waits again
//	zookeeper   meta.Memory behind sessions that expire, requests and answers that
//	            are lost, and requests that are delivered late, in a later session
//	net         calls between machines: delayed, overtaken, lost one way or both
//	machine     vfs.Mem: a crash of the process keeps the page cache, a loss of power
//	            drops 0, 50 or 100 % of what was not synced, also in the midst of a
//	            write; wiped, full, with an fsync that fails; a clock of its own
//	bucket      objstore.Mem: down, slow, failing before or after the effect,
//	            corrupt answers, objects that can't be seen right after their Put
//
// Brokers are killed, stopped in order, paused, cut off from each other and from
// ZooKeeper; sessions expire; ZooKeeper loses its quorum. A loss that takes data
// is only made where the replication factor bears it: nothing may be lost then.
//
// # What is asserted
//
// After each step (checks.go), every replica that runs, each state, pointer and
// object that is written:
//
//	R1  what is committed is on each member of the ISR at any time, what is
//	    acknowledged is committed; there is one record at a committed offset, for
//	    ever, and one offset for a record (E1); who leads has all of them
//	R2  epochs only rise        R4  the epoch by one, the ISR registered
//	R5  nobody cuts off what it knew as committed
//	R6  who is elected holds what was committed
//	T1  archived is committed   T2  no key is written twice
//	T3  pointer, manifest, pages, objects and indexes agree with the history
//	T4  no disk begins past the pointer; nothing that is named is deleted
//	T7  nothing between log start and high watermark is out of range
//
// Clients write with acks=all as idempotent producers, and with acks=1 without a
// thought; they check what they read, and that who says it leads isn't older than
// the lease lets it be (A10, A11). At the end everything heals, by itself and
// within a minute: all in sync, all archived. In one seed of three a leader's disk is
// filled then: another leads, and writes go on. Then the whole log is read through
// every replica, hot and cold.
//
// # A seed
//
// The same seed gives the same trace: what goroutines ask for at the same moment
// is sorted before anything is drawn for it. A seed counts with ≥ 500 acknowledged
// writes, ≥ 10 faults, ≥ 3 leader changes, ≥ 5 uploads, a local deletion and a
// cold read.
package main
