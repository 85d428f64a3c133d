// Package replication keeps the replicas of a partition: who leads, who follows,
// how far is committed. It knows no network, no tiering and no ZooKeeper.
package replication
