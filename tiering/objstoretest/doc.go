// Package objstoretest is the contract of objstore.Store as a test: each
// implementation, and each wrapper, passes Run. RunHTTP is what the clients of
// S3 must make of replies that are not what they asked for.
//
// It knows no implementation. Where stores differ and callers must not care
// (what a List started during a write shows, say), nothing is tested.
package objstoretest
