package segment

import "slices"

// epochs is the chain of leader epochs: strictly rising epochs with rising
// starts. It is changed by replacing it, so that readers need no lock.
type epochs []EpochStart

// with returns the chain after epoch began at start, and whether that is new.
// An epoch that began at the same offset or later left no record here: it goes,
// as in Kafka's file.
func (c epochs) with(epoch int32, start int64) (epochs, bool) {
	if epoch <= c.latest() {
		return c, false
	}
	n := len(c)
	for n > 0 && c[n-1].Start >= start {
		n--
	}
	return append(slices.Clone(c[:n]), EpochStart{epoch, start}), true
}

func (c epochs) latest() int32 {
	if len(c) == 0 {
		return -1
	}
	return c[len(c)-1].Epoch
}

// at is the epoch of the record at offset; -1 below the chain.
func (c epochs) at(offset int64) int32 {
	for i := len(c) - 1; i >= 0; i-- {
		if c[i].Start <= offset {
			return c[i].Epoch
		}
	}
	return -1
}

// end answers OffsetForLeaderEpoch (KIP-279) of a log that ends at logEnd: the
// largest epoch not above the asked one, and where the next one begins. Of an
// epoch before the chain, whose records are gone, it tells the asked epoch and
// the chain's beginning, so that a follower goes on there.
func (c epochs) end(epoch int32, logEnd int64) EpochEnd {
	if epoch < 0 || epoch > c.latest() {
		return EpochEnd{-1, -1}
	}
	if epoch == c.latest() {
		return EpochEnd{epoch, logEnd}
	}
	i := slices.IndexFunc(c, func(e EpochStart) bool { return e.Epoch > epoch })
	if i == 0 {
		return EpochEnd{epoch, c[0].Start}
	}
	return EpochEnd{c[i-1].Epoch, c[i].Start}
}

// below returns the chain of the log cut at end. An epoch that begins there goes
// too, even where the cut takes no record (hazard A2).
func (c epochs) below(end int64) epochs {
	n := len(c)
	for n > 0 && c[n-1].Start >= end {
		n--
	}
	return c[:n:n]
}

// from returns the chain of a log that begins at start.
func (c epochs) from(start int64) epochs {
	i := len(c) - 1
	for i >= 0 && c[i].Start > start {
		i--
	}
	if i < 0 || c[i].Start == start && i == 0 {
		return c
	}
	cut := slices.Clone(c[i:])
	cut[0].Start = start
	return cut
}

// upTo drops the epochs that begin past end: their records are lost. One that
// begins at end has none yet.
func (c epochs) upTo(end int64) epochs {
	n := len(c)
	for n > 0 && c[n-1].Start > end {
		n--
	}
	return c[:n:n]
}
