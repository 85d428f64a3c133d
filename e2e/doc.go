// Package e2e tests firn as its users meet it: real processes, real clients, a
// real object store, and faults. It also holds the rules of the house (which
// package may import which), the load harness (bench) and the checker.
//
// What takes minutes is not part of CI:
//
//	make long                                     all of the following
//	make long ARGS='-run TestLongQuorumLoss'      two minutes without ZooKeeper's quorum, sessions of 2 and 6 s
//	make long ARGS='-run TestLongFailover'        SIGKILL of a leader at the default session timeout of 18 s
//	make long ARGS='-run TestLongManyPartitions'  3 000 partitions × 3 on three brokers: idle, SIGKILL, restart
//	make long ARGS='-run TestLongBrokerWhoseDiskFails'  a write and an fsync that fail under a broker
//	go test -tags scale -run TestScale ./e2e -v -scale.store zookeeper    100 000 partitions, brokers without logs
package e2e
