// Package segment keeps the log of one partition in files, byte for byte as
// Apache Kafka lays them out: Kafka's own tools read our directory, and we read
// Kafka's. It knows no network, no cluster and no object store.
//
// # What lies on disk
//
//	logs/                                    Dir
//	  .lock                                  one process at a time
//	  meta.properties                        whose directory this is
//	  recovery-point-offset-checkpoint       below it everything was flushed
//	  replication-offset-checkpoint          high watermarks
//	  log-start-offset-checkpoint            log starts that no file name tells; an archived log's, always
//	  .kafka_cleanshutdown                   mark of a clean stop, consumed by the next start
//	  topic-0/                               Log
//	    00000000000000000000.log             a sealed segment: batches, one behind the other
//	    00000000000000000000.index           offset → position, an entry per 4 KiB
//	    00000000000000000000.timeindex       timestamp → offset, running maximum
//	    00000000000000000000.txnindex        aborted transactions, if there are any
//	    00000000000000004711.log             the active segment: appends go here
//	    00000000000000004711.snapshot        producer state at the offset in its name
//	    leader-epoch-checkpoint              the epoch chain
//	    partition.metadata                   topic id
//	  topic-1.<id>-delete/                   a deleted partition, until its delay is over
//	                                         or the disk is short of space
//
// A segment's name is its first offset. A batch is Kafka's format v2 (package
// batch). The index files are a function of the .log file and of
// index.interval.bytes alone: the active segment's are in memory, and written
// when it is sealed or the log closed.
//
// # Invariants
//
// The numbers are cited in the code.
//
//   - S1: below End a log is whole, verified batches with rising offsets. An
//     append is checked before it is written, recovery checks what it finds. A
//     client's records are looked at too, where they aren't compressed or are to
//     be recompressed; a replica and recovery take them as a leader once did, by
//     the CRC: to refuse what others have committed would only stop them.
//   - S2: an index is derived. What a lookup finds by it is checked against the
//     batch there; on any doubt it is made again from the batches.
//   - S3: sealed files never change. A goroutine that lives while there is
//     something to do writes the index files and fsyncs all of them;
//     SealedSegment.Synced tells.
//   - S4: an I/O error ends the log until restart: ErrFailed from every call. A
//     full disk does not: the append is cut off, ErrNoSpace, and the next append
//     tries again.
//   - S5: damage below the recovery point quarantines the log: ErrQuarantined
//     from every call, the files as they are. It opens; Log.Err tells, with the
//     Damage. Repair puts it back into service: without what the archive has, and
//     with all the rest, verified, or not at all; RestartAt does, empty.
//   - S6: flush.messages. Until so many records are unflushed, Counted is End;
//     then it stays where it was until an fsync, which nobody who appends waits
//     for, has caught up. OnCounted tells of it. flush.ms is a flush that nothing
//     waits for.
//
// # The life of an append
//
// Append checks CRC, headers and records without a lock. Under the log's lock it
// asks what is remembered of the producers (a repetition is answered here), rolls
// if the batches don't belong into the active segment, stamps offsets and epoch
// into the caller's bytes and writes them with one WriteAt: the commit point. Then
// index, ring, producers and offsets follow in memory, the offsets last, as one
// picture under a sequence lock. Until then no reader sees anything, so a failed
// write needs no undo but the truncation of the file.
//
// # The life of a read
//
// Read takes one picture of the offsets and the segments, finds the batch in the
// ring of the latest batches (no system call), or by the index and one read of a
// few KiB, and answers with a range of the file, which stays open until the
// caller releases it. It takes no lock that an append holds over a write. At most
// DirConfig.MaxOpenFiles files stay open; others are opened when needed.
//
// # What a crash leaves
//
// After a clean stop nothing is scanned, and no segment file is opened before its
// first use. After any other, a log is scanned from the checkpointed recovery
// point on:
//
//	torn or missing tail          cut off at the last whole batch, in one log line
//	damage below the point        quarantine (S5)
//	repair half done              as before, or some of what is archived gone
//	sealed, index files missing   made again, the same bytes
//	epoch file torn               made again from the batches; epochs without
//	                              records are lost, and harm nobody
//	snapshot torn or missing      an older one, and the batches since
//	*.deleted, *-delete           deleted for good
//	partition's deletion begun    its directory, whole or with no more than its topic
//	                              id: whoever knows that the topic is gone deletes it
//	*.tmp                         removed: what it was to replace is as it was
//	truncation half done          the log as before, as after, or cut at a
//	                              segment border in between
//	log start moved, files there  dropped by the next retention
//	end below the log start       starts again at the log start, empty
//	.sync-failed                  what was not flushed is written again: a failed
//	                              fsync may have left it in the page cache only
//
// A recovery point is written after the batches, files and epochs below it are
// durable, and lowered, durably, before a truncation. Files that go get their new
// name one by one, each durably before the next, so that a power loss leaves no
// hole.
package segment
