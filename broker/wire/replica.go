package wire

// The requesting side of Fetch, in the one version that brokers use among
// themselves: topics by id, and the broker epoch of the replica.

// ReplicaFetchVersion is that version.
const ReplicaFetchVersion = 17

// ReplicaFetch is the head of a replica's Fetch request.
type ReplicaFetch struct {
	Correlation           int32
	ClientID              string
	Replica               int32
	BrokerEpoch           int64
	MaxWaitMillis         int32
	MinBytes, MaxBytes    int32
	Session, SessionEpoch int32
}

// ReplicaFetchWriter appends a request to B.
//
//	Begin(head, topics) { Topic(id, n) n × Partition EndTopic } Forgotten(m) m × ForgottenTopic End
type ReplicaFetchWriter struct {
	B    []byte
	head ReplicaFetch
}

// Begin appends a frame up to the number of topics.
func (w *ReplicaFetchWriter) Begin(h ReplicaFetch, topics int) {
	w.head = h
	b := append(w.B[:0], 0, 0, 0, 0)
	b = be.AppendUint16(b, KeyFetch)
	b = be.AppendUint16(b, ReplicaFetchVersion)
	b = be.AppendUint32(b, uint32(h.Correlation))
	b = be.AppendUint16(b, uint16(len(h.ClientID)))
	b = append(b, h.ClientID...)
	b = append(b, 0) // tags of the header
	b = be.AppendUint32(b, uint32(h.MaxWaitMillis))
	b = be.AppendUint32(b, uint32(h.MinBytes))
	b = be.AppendUint32(b, uint32(h.MaxBytes))
	b = append(b, 0) // isolation
	b = be.AppendUint32(b, uint32(h.Session))
	b = be.AppendUint32(b, uint32(h.SessionEpoch))
	w.B = appendArrayLen(b, topics, true)
}

// Topic begins a topic of n partitions.
func (w *ReplicaFetchWriter) Topic(id [16]byte, n int) {
	w.B = append(w.B, id[:]...)
	w.B = appendArrayLen(w.B, n, true)
}

// Partition appends a partition.
func (w *ReplicaFetchWriter) Partition(p FetchPartition) {
	b := be.AppendUint32(w.B, uint32(p.Index))
	b = be.AppendUint32(b, uint32(p.LeaderEpoch))
	b = be.AppendUint64(b, uint64(p.Offset))
	b = be.AppendUint32(b, uint32(p.LastEpoch))
	b = be.AppendUint64(b, uint64(p.LogStart))
	b = be.AppendUint32(b, uint32(p.MaxBytes))
	w.B = append(b, 0)
}

// EndTopic ends a topic.
func (w *ReplicaFetchWriter) EndTopic() { w.B = append(w.B, 0) }

// Forgotten begins the n topics that the session is to forget partitions of.
func (w *ReplicaFetchWriter) Forgotten(n int) { w.B = appendArrayLen(w.B, n, true) }

// ForgottenTopic appends one partition of a topic to forget.
func (w *ReplicaFetchWriter) ForgottenTopic(id [16]byte, partition int32) {
	w.B = append(w.B, id[:]...)
	w.B = appendArrayLen(w.B, 1, true)
	w.B = be.AppendUint32(w.B, uint32(partition))
	w.B = append(w.B, 0)
}

// End ends the request.
func (w *ReplicaFetchWriter) End() {
	b := append(w.B, 1) // rack: empty
	b = append(b, 1, 1, 13)
	b = be.AppendUint32(b, uint32(w.head.Replica))
	b = be.AppendUint64(b, uint64(w.head.BrokerEpoch))
	b = append(b, 0)
	EndResponse(b, 0, 0)
	w.B = b
}

// ReplicaFetchAnswer is the answer to such a request, in place: its records point
// into the frame.
type ReplicaFetchAnswer struct {
	Code       int16
	Session    int32
	Partitions []FetchedPartition
}

// FetchedPartition is the answer about one partition.
type FetchedPartition struct {
	Topic         [16]byte
	Index         int32
	Code          int16
	HighWatermark int64
	LogStart      int64
	Diverging     DivergingEpoch // Epoch and End -1: none
	Records       []byte
}

// Parse reads an answer without its length and correlation id.
func (a *ReplicaFetchAnswer) Parse(body []byte) error {
	r := NewReader(body, true)
	*a = ReplicaFetchAnswer{Partitions: reuse(a.Partitions)}
	r.SkipTags() // of the header
	r.Int32()    // throttle time
	a.Code = r.Int16()
	a.Session = r.Int32()
	for n := r.ArrayLen(18); n > 0 && r.err == nil; n-- {
		id := r.UUID()
		for m := r.ArrayLen(37); m > 0 && r.err == nil; m-- {
			a.Partitions = append(a.Partitions, fetchedPartition(&r, id))
		}
		r.SkipTags()
	}
	r.SkipTags()
	return r.err
}

func fetchedPartition(r *Reader, id [16]byte) FetchedPartition {
	p := FetchedPartition{Topic: id, Diverging: DivergingEpoch{Epoch: -1, End: -1}}
	p.Index = r.Int32()
	p.Code = r.Int16()
	p.HighWatermark = r.Int64()
	r.Int64() // last stable offset
	p.LogStart = r.Int64()
	for n := r.ArrayLen(17); n > 0 && r.err == nil; n-- { // aborted transactions
		r.take(16)
		r.SkipTags()
	}
	r.Int32() // preferred replica
	p.Records = r.NullableBytes()
	for n := r.tagCount(); n > 0 && r.err == nil; n-- {
		if num, c := r.tag(); num == 0 {
			p.Diverging = DivergingEpoch{Epoch: c.Int32(), End: c.Int64()}
			r.join(&c)
		}
	}
	return p
}
