package wire

// maxPartitions bounds the partitions of one request: more than a broker hosts,
// few enough that a request's state stays small beside its frame.
const maxPartitions = 1 << 17

// maxProduce is the newest version of Produce.
const maxProduce = 13

// keepPartitions is how many elements of scratch a parsed request keeps for the next.
const keepPartitions = 4096

// ProduceRequest is a Produce request of v0 to v13, in place: it points into
// its frame. One is used again and again. (v0 to v2 carry formats of records that
// we refuse, but must be understood to be refused in words.)
type ProduceRequest struct {
	Version         int16
	TransactionalID []byte // nil: null
	Acks            int16
	TimeoutMillis   int32
	Topics          []ProduceTopic
	Partitions      []ProducePartition // of all topics
}

// ProduceTopic is a topic of a request: Partitions[From:Below] are its own.
type ProduceTopic struct {
	Name        []byte   // up to v12
	ID          [16]byte // from v13
	From, Below int
}

// ProducePartition is what to append to a partition.
type ProducePartition struct {
	Index   int32
	Records []byte // nil: null
}

// ProduceFlexible tells whether a version of Produce is flexible.
func ProduceFlexible(version int16) bool { return version >= 9 }

// Parse reads the body of a request. It keeps and changes nothing of body, and
// reads it whole before anything of it is acted on.
func (p *ProduceRequest) Parse(version int16, body []byte) error {
	flex := ProduceFlexible(version)
	r := NewReader(body, flex)
	p.Version = version
	p.Topics = reuse(p.Topics)
	p.Partitions = reuse(p.Partitions)
	p.TransactionalID = nil
	if version >= 3 {
		p.TransactionalID = r.NullableString()
	}
	p.Acks = r.Int16()
	p.TimeoutMillis = r.Int32()
	for n := r.ArrayLen(6); n > 0 && r.err == nil; n-- {
		t := ProduceTopic{From: len(p.Partitions)}
		if version >= 13 {
			t.ID = r.UUID()
		} else {
			t.Name = r.String()
		}
		m := r.ArrayLen(5)
		if len(p.Partitions)+m+len(p.Topics) > maxPartitions {
			return ErrTooMany
		}
		for ; m > 0 && r.err == nil; m-- {
			i := r.Int32()
			b := r.NullableBytes()
			r.SkipTags()
			p.Partitions = append(p.Partitions, ProducePartition{Index: i, Records: b})
		}
		r.SkipTags()
		t.Below = len(p.Partitions)
		p.Topics = append(p.Topics, t)
	}
	r.SkipTags()
	return r.err
}

// reuse empties s, and lets it go if a rare large request made it large.
func reuse[T any](s []T) []T {
	if cap(s) > keepPartitions {
		return nil
	}
	clear(s) // what it pointed to may go
	return s[:0]
}

// ProduceResponse appends a response to B, partition after partition.
type ProduceResponse struct {
	B       []byte
	version int16
	flex    bool
	start   int
}

// ProduceResult is the answer for a partition.
type ProduceResult struct {
	Index         int32
	Code          int16
	BaseOffset    int64
	LogAppendTime int64
	LogStart      int64
	Records       []RecordError // v8
	Message       string        // v8; "": null
	Leader        Leader        // v10
}

// RecordError tells what is wrong with one record of a batch.
type RecordError struct {
	Index   int32
	Message string
}

// Begin appends the head of a response to request version, up to the number of topics.
func (w *ProduceResponse) Begin(version int16, correlation int32, topics int) {
	w.version, w.flex, w.start = version, ProduceFlexible(version), len(w.B)
	w.B = BeginResponse(w.B, correlation, w.flex)
	w.B = appendArrayLen(w.B, topics, w.flex)
}

// Topic begins a topic of n partitions.
func (w *ProduceResponse) Topic(t *ProduceTopic) {
	if w.version >= 13 {
		w.B = append(w.B, t.ID[:]...)
	} else {
		w.B = appendString(w.B, t.Name, w.flex)
	}
	w.B = appendArrayLen(w.B, t.Below-t.From, w.flex)
}

// Partition appends the answer for a partition. It returns the place of the
// code in B, for [FailProduce].
func (w *ProduceResponse) Partition(p *ProduceResult) int {
	b := be.AppendUint32(w.B, uint32(p.Index))
	at := len(b)
	b = be.AppendUint16(b, uint16(p.Code))
	b = be.AppendUint64(b, uint64(p.BaseOffset))
	if w.version >= 2 {
		b = be.AppendUint64(b, uint64(p.LogAppendTime))
	}
	if w.version >= 5 {
		b = be.AppendUint64(b, uint64(p.LogStart))
	}
	if w.version >= 8 {
		b = appendArrayLen(b, len(p.Records), w.flex)
		for _, e := range p.Records {
			b = be.AppendUint32(b, uint32(e.Index))
			b = appendNullable(b, e.Message, w.flex)
			if w.flex {
				b = append(b, 0)
			}
		}
		b = appendNullable(b, p.Message, w.flex)
	}
	if w.flex {
		if w.version >= 10 && p.Leader != NoLeader {
			b = append(b, 1)
			b = appendLeader(b, 0, p.Leader)
		} else {
			b = append(b, 0)
		}
	}
	w.B = b
	return at
}

// FailProduce turns the answer whose code stands at b[at] into a failure: what
// was appended turned out not to be committed.
func FailProduce(b []byte, at int, code int16) {
	be.PutUint16(b[at:], uint16(code))
	for i := at + 2; i < at+10; i++ {
		b[i] = 0xff // base offset: none
	}
}

// leaderTag is how far behind the code of what was appended a partition's tags are,
// from v8 on: base offset, append time, log start, no record errors, no message.
const leaderTag = 2 + 8 + 8 + 8 + 1 + 1

// TellLeader adds to the failed answer whose code stands at b[at] who leads now, in
// a response of v10 or later; it says by how much the rest has moved. [TellNodes]
// must follow.
func TellLeader(b []byte, at int, l Leader) (_ []byte, moved int) {
	at += leaderTag
	rest := append([]byte{}, b[at+1:]...)
	n := len(b)
	b = appendLeader(append(b[:at], 1), 0, l)
	b = append(b, rest...)
	return b, len(b) - n
}

// TellNodes puts nodes in the place of those at the end of a response of v10 or
// later, which b holds alone.
func TellNodes(b []byte, now, nodes []Node) []byte {
	b = appendNodes(b[:len(b)-len(appendNodes(nil, now))], nodes)
	EndResponse(b, 0, 0)
	return b
}

// EndTopic ends a topic.
func (w *ProduceResponse) EndTopic() {
	if w.flex {
		w.B = append(w.B, 0)
	}
}

// End ends the response; nodes say where the leaders are that it names (v10).
func (w *ProduceResponse) End(throttleMillis int32, nodes []Node) {
	if w.version >= 1 {
		w.B = be.AppendUint32(w.B, uint32(throttleMillis))
	}
	if w.flex {
		if w.version < 10 {
			nodes = nil
		}
		w.B = appendNodes(w.B, nodes)
	}
	EndResponse(w.B, w.start, 0)
}
