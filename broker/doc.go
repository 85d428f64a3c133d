// Package broker is the Kafka server: it speaks the protocol to clients, keeps
// this broker's part of the cluster, and joins the layers below, which don't know
// each other: logs (segment), their archive (tiering), their replicas
// (replication) and what the cluster must remember (replication/meta). It stores
// nothing itself but one small file, broker-epoch.json.
//
// # Where to find what
//
//	server, conn, memory, write     listeners and connections
//	queue                           acks that wait, in order
//	dispatch                        the table of APIs: what isn't there isn't advertised
//	produce, fetch…                 the hot path, parsed by hand (broker/wire)
//	one file per API                metadata, create_topics, list_offsets, …
//	errors                          one table from our errors to Kafka's codes
//	join, ready, drain              the start, and the end
//	session, epochs                 one registration after the other, and its lease
//	image, topics                   the picture of the cluster
//	replicas, roles, lost, mend     the partitions that this broker hosts
//	replica_fetch, insync           replicas that fetch from here: whom to believe, who is in sync
//	followers                       replicas that follow others, through broker/peer
//	topic_admin, config_admin       what admin requests change, and the wait for it
//	archive, purge, topic_json      tiering's seams: pointers, policies, what topics
//	                                are, deleted topics
//	loops, status                   retention and checkpoints; what an operator is told
//	fullness                        others lead while the disk is full
//
// # The picture
//
// The image follows the metadata store's change notes. For each round it reads
// what they name, brings this broker's replicas up to it, and publishes an
// immutable topicIndex by one atomic pointer: handlers and the hot path take no
// lock to find a partition, and never see a replica that isn't open.
//
//	client ─▶ handler ─▶ fenced write + note ─▶ metadata store
//	                                               │ note
//	            controller ◀───────────────────────┤
//	                 └─▶ partition states + note ─▶│
//	                                               ▼
//	            image ─▶ replicas.apply ─▶ topicIndex ─▶ the handler's wait ends
//
// An admin request is answered when its outcome is to be seen in the picture and,
// of partitions led here, when they lead; or with a time-out.
//
// # A connection
//
// One goroutine reads it and answers in order. Produce and Fetch are parsed where
// they lie in its buffer, everything else is decoded from a copy, so that handlers
// may keep it (G5).
//
//	frames ─▶ Produce ─▶ Partition.Append ─▶ acked? ─▶ held back while whole
//	   │                                       │       requests are buffered ─▶ one write
//	   │                                       └ not yet ─▶ queue of acks ─▶ its responder
//	   ├────▶ Fetch ─▶ read ─▶ enough? ─▶ head, then records by sendfile
//	   │                 ▲       └ not yet ─▶ wait: high watermark, log start,
//	   │                 └──────────────────  leadership, arrivals from the archive
//	   └────▶ the rest ─▶ kmsg ─▶ handler, on this goroutine
//
// What waits doesn't grow: a large frame takes its memory from one budget first
// and isn't read until it has it, the queue of acks is bounded, and a client that
// doesn't read its answers isn't read either. An idle connection keeps no buffer.
//
// # The start
//
//	listeners open    clients may connect, and wait
//	log directory     locked; its meta.properties must be this broker's and this
//	                  cluster's, and a new metadata store no old directory's (B10)
//	archive           firn.json must carry our ids; a store that is down is no reason
//	                  not to start
//	logs              opened a few at a time, then registration: only now does a new
//	                  broker epoch say that what we have can be counted on (R6, S7)
//	election          every leader epoch rises; replicas make ready to lead (T8)
//	serving
//
// # A session
//
// A registration, and all that is led and decided under it, lives as long as the
// session of the metadata store that holds it; the broker lives on (session.go).
//
//	session ends ─▶ nothing is led ─▶ registered in a new epoch ─▶ everything read
//	     ▲                                                             │
//	     └───── followed, lease renewed, stood for controller ◀── roles taken
//
// # Invariants that are kept here
//
//	A22  what a replica says counts only between brokers, in its present
//	     registration, and of partitions assigned to it
//	B14  a topic is its id: logs, pointers and pictures never go by name alone
//	R4   every write of an admin request checks this broker's own registration
//	S5   a quarantined log is repaired where the archive has what is damaged
//	Z1   what a new session reads replaces everything, but never what this broker
//	     knows to be newer: then the store was rolled back, and the broker ends
//	S7   a log that fails at run time is listed as given up, and damage is cut off
//	     only when nobody counts on this replica any more; so is one that has
//	     another history than its leader's or the archive's
//	S7   a log that is missing from the disk, or damaged where nobody else has it,
//	     is not made anew or cut in silence: unclean.leader.election.enable=true
//	     for the topic says that the loss is accepted
//	S6   an ack goes by what the log counts, that of acks=1 too
//	T4   retention and DeleteRecords are the leader's alone
//	T7   a lookup or fetch that can't be answered now gets a code that clients retry
//
// # What a crash leaves
//
// Logs recover by themselves. A topic whose deletion had been committed is gone:
// its tombstone tells the next start to delete its logs. A log that no topic and
// no tombstone knows is a stray, and kept. A registration whose outcome is unknown
// is found by the epoch that broker-epoch.json says was intended. What a topic has
// become and the bucket has not been told of is told after the next start (T6).
package broker
