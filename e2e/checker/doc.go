// Package checker says whether a log kept its promises, from the history of what
// clients did to one partition and saw of it. It is pure: it knows no broker and
// no network, and its tests are text files.
//
// # A history
//
// One text file for each partition, a line for each operation, written when the
// operation is over. Times are microseconds of one monotonic clock, "from-to".
// A value is the nth record of a producer, "i3.17"; producers are named by what
// they were promised: i… idempotent with acks=all, n… acks=all, w… acks=1.
// "17=i3.5*4" stands for four records from offset 17 on, i3.5 to i3.8.
//
//	write 10-15 i3.17 @41            acknowledged, at offset 41
//	write 10-15 i3.17 fail           certainly not written
//	write 10-15 i3.17 unknown        perhaps
//	seek 16 c1 0                     reader c1 goes to an offset
//	read 16-18 c1 0=i3.0*41 41=?     what it got; ? is nothing that anybody wrote here
//	range 16-18 c1 12                it was told that 12 lies outside the log
//	latest 16-18 c1 42               ListOffsets: end of what is committed,
//	earliest 16-18 c1 0              start of the log,
//	archived 16-18 c1 30             end of what is archived
//	trim 16-18 20                    somebody asked to delete below 20
//	commit 16-18 g1 41               group g1's offset was committed
//	committed 16-18 g1 41            and this is what was found
//	past 10-20 5                     meanwhile who was told an offset may have been told
//	                                 what was so 5 microseconds before
//	leader 16 b2 b1 5                b2 says that b1 leads in epoch 5
//	dump b1 0 42                     what is left in the end: b1 holds [0, 42)
//	has b1 0=i3.0*42/5/1a2b3c4d      a batch of it: records, leader epoch, CRC
//
// The sources of dumps are "log", all that clients read once everything is
// healed, "archive", the bucket by itself, and replicas by any other name.
//
// # What is checked
//
// Kind lists it, and testdata has for each a history that shows it and a twin
// that is clean. Check reads a history twice, first what was written, then what
// was seen, and keeps some 60 bytes for each write: a partition at a time fits
// in memory however long the run was.
//
// A leader without its ZooKeeper answers while its followers have followed within
// the lease time, so for that long it may not know of the next leader: "past" marks
// the times when that may be, and says how long. What is committed, and what
// readers get, is held to no less then.
package checker
