// Package objstore is an object store reduced to bytes by key: the Store
// interface, and what its implementations and users share.
//
// It knows nothing of what the bytes mean, of segments or of manifests. Three
// packages implement Store for real: filestore (a directory), s3 and minio.
// Here are those that need no network:
//
//	Mem       objects in memory
//	Inject    any store, with faults as a test wants them
//	Measured  any store, with its requests counted
//
// and Probe, which tells in words what is wrong with a store before a broker
// relies on it.
//
// What callers may rely on, and objstoretest checks:
//
//   - an object appears whole or not at all, under Put and under Create;
//   - when Put or Create returns nil, the object is durable and readable;
//   - of any number of concurrent Creates of a key exactly one succeeds;
//   - a stream never ends early without an error.
//
// What they may not: the bytes that come back are input (T5). A store, a proxy
// or a disk may change them, so whoever reads verifies.
//
// An error that is none of the four sentinels is an outage, and leaves the
// outcome of a write unknown: the object may be there, whole.
package objstore
