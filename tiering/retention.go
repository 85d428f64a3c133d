package tiering

// span is a run of data that retention judges as one: a segment, or for a start
// a whole page of them.
type span struct {
	End     int64 // the offset after it
	MaxTime int64 // of its records, Unix milliseconds
	Bytes   int64
}

// limits are the limits of a retention; -1 is none.
type limits struct{ ms, bytes int64 }

func (l limits) none() bool { return l.ms < 0 && l.bytes < 0 }

// due returns how many of the spans, oldest first, are past the limits, and what
// total, the bytes of the whole log, is without them. Nothing that ends past
// below goes: it isn't committed, or may not be deleted for another reason.
//
// As in Kafka, a log is cut from its beginning only: a span that is young enough
// keeps all that follow it. By time a span goes when its largest timestamp is
// older than ms (one without timestamps never), by size when the log has still
// bytes without it.
func (l limits) due(spans []span, total, now, below int64) (n int, rest int64) {
	for _, s := range spans {
		old := l.ms >= 0 && s.MaxTime >= 0 && s.MaxTime < now-l.ms
		big := l.bytes >= 0 && total-s.Bytes >= l.bytes
		if s.End > below || !old && !big {
			break
		}
		n++
		total -= s.Bytes
	}
	return n, total
}
