// Package link is the network between processes of a test: each link is a TCP
// proxy on loopback in front of one listener, which understands Kafka's frames
// as far as their headers.
//
//	b2 ─┐                      ┌─▶ b1's inter-broker listener
//	b3 ─┴─▶ Link "b1" ─────────┘
//
// A link tells its callers apart by the client id in their requests, so that
// each edge can be cut, stalled one way or both, or slowed by itself; and it can
// hold or repeat the requests of a single API.
package link
