// Package tiering moves sealed segments of a log to an object store, and serves
// them from there. It knows no Kafka protocol and no ZooKeeper: bytes go through
// objstore.Store, the local log is a *segment.Log, and the one thing that
// must be agreed on, a pointer per partition, goes through Pointers.
//
// # What is in the bucket
//
//	firn.json                                          whose bucket this is: Identity
//	<topic>~<topicId>/topic.json                       name, id, partitions, configs: TopicInfo
//	<topic>~<topicId>/deleted.json                     the topic is deleted
//	<topic>~<topicId>/<partition>/
//	    <base20>-<epoch>-<id>.log                      the segment, byte for byte
//	    <base20>-<epoch>-<id>.idx                      all else about it: Index
//	    manifest/<epoch10>-<seq20>-<id>                what is archived: Manifest
//	    page/<base20>-<last20>-<epoch>-<id>            sealed run of old entries: Page
//
// A partition in the metadata store and in the bucket:
//
//	Pointer ──names──▶ Manifest seq 12 ──names──▶ Manifest seq 11 ─▶ …
//	                   │ pages:   [0,512) [512,1024)  ──▶ Page, Page
//	                   │ entries: 1024 1025 … 1300     the newest segments
//	                                 │
//	                                 └──▶ .log + .idx
//
//	offsets:   deleted through ≤ log start ≤ … entries … ≤ archived end
//	           ┊  deletable    ┊   served                 ┊  only on disk
//
// Index, Manifest and Page are frames (codec.go): magic, version, length,
// CRC-32C, then a body of varints. A newer version is ErrVersion, all else that
// doesn't decode is ErrCorrupt.
package tiering
