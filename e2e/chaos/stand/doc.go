// Package stand starts a cluster as plain processes on loopback, without a test
// around them: brokers, an object store, ZooKeeper. A stand lies in a directory
// and can be stopped and set up again there by another process, on other ports:
// that is what makes long runs resumable.
//
//	clients ──▶ Clients ──▶ b1 ──▶ Peers of b2, b3      each arrow is a link that
//	                        b1 ──▶ ZK[i] ──▶ zki        can be cut (e2e/chaos/link)
//	                        b1 ──▶ Store.Proxy ──▶ MinIO
package stand
