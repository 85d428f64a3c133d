// Package peer is one broker's client of another: the requests by which a
// follower replicates, and the controller's question for the furthest log. It
// knows the protocol and sockets, and nothing of what is asked for or why.
//
// A Client is one connection, made when it is needed and after a failure made
// anew. One request is under way at a time, and its answer is read into the
// connection's buffer, where records stay until the next request: from there they
// go into the log, without a copy.
//
//	Fetch                v17: topic ids, the replica's id and broker epoch, sessions
//	OffsetForLeaderEpoch v4   where an epoch ends; replica id −2: a log's last epoch and end
//	ListOffsets          v9   where a log begins
//
// What a broker answers is input all the same: lengths are believed only as far
// as bytes arrive, and the log verifies every batch.
package peer
