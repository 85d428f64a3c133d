// Package meta is what a cluster must remember: the value types, where they are
// kept, which writes belong together, and the contract of the store that keeps
// them. It knows no ZooKeeper and no file; Memory is a store for tests and
// simulations.
//
// # The tree
//
//	/brokers/ids/<id>                        ephemeral: where a registered broker is
//	/brokers/topics/<t>                      id and replicas; a creation's commit point
//	/brokers/topics/<t>/partitions/<p>/state leader, epoch, ISR, eligible members
//	/controller                              ephemeral: who decides
//	/controller_epoch                        raised by each who comes to decide
//	/config/topics/<t>  /config/brokers/<id> dynamic configs
//	/cluster/id                              made once
//	/latest_producer_id_block                the last block that was handed out
//	/firn/brokers/<id>                       persistent: broker epoch, valid-from (R6)
//	/firn/topics/<topicId>                   is there while the topic is
//	/firn/tier/<topicId>/<p>                 the archive's pointer (T3)
//	/firn/offline/<id>                       what a broker gives up: replicas (S7), leads
//	/firn/lease/<id>                         ephemeral: rewritten to keep a lease
//	/firn/purge/<topicId>                    tombstone of a deleted topic: its archive, and its
//	                                         logs on brokers that were away
//	/firn/elections/<name>                   wishes for elections, until they are granted
//	/firn/archive                            id of the archive, made once
//	/firn/adopting                           a cluster's metadata is moving in, and by what
//
// Names and JSON are those of Kafka with ZooKeeper where it has one, with fields
// of ours added.
//
// # Writes
//
// The functions that make Writes know which checks the invariants ask for (R4,
// T3); the writer adds its fence: its own registration, or its controller epoch.
// Nothing is changed but by compare-and-set, so that a request which a client
// library delivers late, even in another session, does no harm (Z2). CommitAll
// puts independent writes together up to a commit's limits. Each write carries
// the note that makes others read again what it changed.
//
// # What a crash leaves
//
// A commit is there whole or not at all. Of CommitAll's writes a crash leaves
// some undone: each is right without the others, and whoever decides next reads
// what is there. A topic being deleted is marked in its node, and gone from
// /firn/topics, before the rest goes; FinishDelete may be begun again.
package meta
