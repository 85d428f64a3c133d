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
//
// # The life of a segment
//
//	sealed ──▶ on disk ──▶ committed ──▶ .log, .idx put ──▶ page, manifest put ──▶ pointer moved
//	 (roll)    durably    (min(HW,LSO))   named by nothing    named by nothing      archived (T3)
//	                        T1                T2                                       │
//	                                              local copy deleted  ◀────────────────┤ pointer read back (T4)
//	objects deleted ◀── grace ◀── log start in the pointer past it  ◀──────────────────┘ retention, DeleteRecords
//	 └─▶ "deleted through" in the pointer, entry dropped
//
// A Log is a *segment.Log with an archive. Step uploads (upload.go), and
// publishes what is uploaded with one manifest and one pointer move
// (publish.go); Keep applies retention and deletes from the archive (keep.go);
// Evict deletes from the disk (evict.go); Sweep removes orphans (sweep.go). Each
// does one thing and starts nothing; Archive.Run (run.go) owns the goroutines.
//
// # The life of a cold read
//
//	offset ──▶ manifest, page ──▶ Entry ──▶ .idx ──▶ position ──▶ blocks ──▶ batches
//	           resolver           T5        coldIndexes           cache      coldWindow
//
// No step waits: what isn't here is started, once for all who ask, and its
// channel goes out as Pending (coldread.go). A coldStream keeps what one reader
// has worked out under the offset that it will ask for next; by it the cache
// reads ahead, across segments. A jump knows where its batch begins (the .idx has
// starts of batches, and the checksum of each 64 KiB), brings nothing before it,
// and is answered when the batch is here; read-ahead begins when the reader comes
// back. An .idx of version 1 has neither: then the batch before comes along, and
// blocks are verified whole. A batch is served by its block's checksum, which
// the .idx has, whose own the manifest has, and by its place: within what its
// entry serves (D28). An object that is missing or damaged has the pointer read
// anew once, then is tried again for seconds (D17) before it is ErrLost (D24).
// Lookups by time take the same steps, but wait (coldlookup.go).
//
// # Invariants
//
//	T1  candidate takes only what is sealed, synced and below min(HW, LSO).
//	T2  keys carry base offset, leader epoch and a random id; a leadership and
//	    its attempts end with its epoch.
//	T3  movePointerLocked is the commit point. What no manifest of the pointer
//	    names is neither served nor counted.
//	T4  evict goes by the pointer as read back; deleteRemote by a log start that
//	    the pointer has had for the grace.
//	T5  whatever comes from the store is verified before it is used (loader.go).
//	T6  .idx has all that an entry has: the bucket rebuilds its manifests.
//	T7  what can't be read now is Pending or ErrUnavailable, what is gone for
//	    good ErrLost; neither is ever "out of range".
//	T8  conform, at open and before leading: a log that ends below the archived
//	    end starts again there, one with another history is ErrDiverged, as is one
//	    that begins past what is archived and past its log start.
//	S5  Repair, at open, before leading and when asked to: of a quarantined log
//	    what is archived goes, by the pointer as read back, and the rest stays.
//	    An upload that meets damage quarantines the log.
//	Z1  loadPointer refuses a pointer older than one that was seen before.
//	Z3  settleLocked: before anything is undone, the outcome of a pointer write is
//	    seen, or its version is passed so that it must fail.
//
// # What a crash leaves
//
// Objects that nothing names, which the next leader's sweep removes; entries
// below the log start whose objects are gone in part, which are deleted again;
// a pointer that this process didn't hear of, which is read at the next open.
// Nothing to repair.
//
// # Failpoints
//
//	tiering.upload.before          segment scanned, nothing put
//	tiering.upload.after           both objects are in the store
//	tiering.manifest.before        before pages and manifest are put
//	tiering.page.after             a page is in the store
//	tiering.manifest.after         the manifest is in the store
//	tiering.pointer.before         before the compare-and-set
//	tiering.pointer.after          it has succeeded, nothing here knows yet
//	tiering.local-delete.before    pointer read back, local files there
//	tiering.local-delete.after     local files gone
//	tiering.remote-delete.before   the grace is over, objects there
//	tiering.remote-delete.objects  the first segment's objects are gone
//	tiering.remote-delete.after    all are gone, the manifest still lists them
//	tiering.restart.before         index read, local log not dropped yet
//	tiering.sweep.delete           before an orphan goes
//	tiering.purge.tombstone        before deleted.json
//	tiering.purge.delete           before an object of a deleted topic goes
//
// # Without a broker
//
// The bucket alone suffices (T6). Bucket finds each partition's manifest without
// a pointer, by the graph of predecessors: the branch that reaches the highest
// epoch wins, leaves of one epoch are united (bucket_graph.go, pure). On it stand
// Verify, Extract, Copy and Restore, which `firn archive` offers. Restore takes
// the prefix over before it counts, and what it does not name the sweep leaves
// alone until ReleaseKept.
package tiering
