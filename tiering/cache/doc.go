// Package cache brings blocks of immutable objects here and keeps the ones that
// pay: in memory, and on a disk if there is one to spare.
//
// It knows objects as a key, a size and one CRC-32C per block of 1 MiB, and for
// newer ones per unit of 64 KiB besides. It does not know what the bytes mean,
// which object follows which, or what to do about an object that is gone: its
// caller does.
//
//	reader ── Stream.At, Get ──► table of blocks ──► pinned Block, zero copy
//	                               │ missing
//	                               ▼
//	                 load (a run of adjacent blocks)
//	                   memory first, then a slot, then
//	                   one ranged GET, or the disk
//	                               │ block by block, as each arrives:
//	                               ▼ length and checksum hold (T5)
//	                 table of blocks ──► readers wake ──► disk, on second touch
//
// What holds:
//
//   - A block has at most one load, however many readers want it. A load belongs
//     to no reader: nobody's timeout ends it, and what arrives is kept.
//   - What the store keeps in files of this machine (objstore.Filed) stays there: a
//     block is verified through a small buffer, then served from the file that was
//     verified, which is open for as long as the block is held and is never written
//     again. It counts on the budget all the same, and goes into no disk cache.
//   - Nothing is handed on whose length or checksum (T5) does not hold, from the
//     store or from the disk. A block that fails twice is ErrCorrupt. What is
//     verified unit by unit may be handed on before the block is whole, to who
//     asks for no more (Part); a jump (Seek) leaves out what lies before its unit,
//     and who needs that later has the block brought again.
//   - Memory is reserved before it is filled, from one budget for all blocks.
//     Read-ahead gets what is within some reader's window and fits; the windows
//     together stay below half of the budget: the rest is for those who come
//     behind, and a full house shrinks read-ahead first. A block that a reader
//     waits for may exceed the budget by a quarter, for what slow connections
//     still pin, and then evicts anything else. Only one batch at a time that is
//     larger than all this may go further.
//   - A load that reaches the end of every window does not break off: it stops
//     reading its connection until a reader comes closer, so one GET may be
//     larger than what memory holds of it. It is cut after a few seconds, or
//     when a reader waits for its slot.
//   - What a GET brings depends on the reader's path alone, not on its speed or
//     its share of the memory: it grows with the way that the reader has come,
//     and ends at borders that all share (getLen).
//   - A block that a lone reader has gone past is the next to be evicted. If
//     another comes behind and keeps up, it stays, read-ahead waits, and the
//     first reader waits too if it must. So two readers of the same data that
//     are no further apart than the memory goes cost the GETs of one.
//   - Get and At never wait. Only Fetch and Getter's methods do.
//
// Retries, hedging, the circuit breaker and the stall timeouts are Getter's.
//
// A crash leaves on the disk whole files, files with wrong content, and files
// called tmp-*. The name of a file carries the checksum of what it must hold,
// which is verified at each load, so nothing is synced; tmp-* files go at Open.
package cache
