package wire

import "math"

// FetchRequest is a Fetch request of v4 to v18, in place: it points into its
// frame. One is used again and again.
type FetchRequest struct {
	Version       int16
	ReplicaID     int32 // -1: a consumer
	ReplicaEpoch  int64 // broker epoch of a replica, from v15; -1
	MaxWaitMillis int32
	MinBytes      int32
	MaxBytes      int32
	Isolation     int8 // 1: read committed
	SessionID     int32
	SessionEpoch  int32
	Topics        []FetchTopic
	Partitions    []FetchPartition // of all topics
	Forgotten     []FetchTopic     // From and Below are of ForgottenPartitions

	ForgottenPartitions []int32

	Rack      []byte
	ClusterID []byte // nil: none
}

// FetchTopic is a topic of a request: Partitions[From:Below] are its own.
type FetchTopic struct {
	Name        []byte   // up to v12
	ID          [16]byte // from v13
	From, Below int
}

// FetchPartition asks for the records of a partition.
type FetchPartition struct {
	Index         int32
	LeaderEpoch   int32 // what the client believes; -1
	Offset        int64
	LastEpoch     int32 // of a replica: epoch of its last record; -1
	LogStart      int64 // of a replica; -1
	MaxBytes      int32
	HighWatermark int64 // of a replica, from v18; the largest int64 if not told
}

// FetchFlexible tells whether a version of Fetch is flexible.
func FetchFlexible(version int16) bool { return version >= 12 }

// Parse reads the body of a request. It keeps and changes nothing of body.
func (f *FetchRequest) Parse(version int16, body []byte) error {
	r := NewReader(body, FetchFlexible(version))
	*f = FetchRequest{
		Version:             version,
		ReplicaID:           -1,
		ReplicaEpoch:        -1,
		SessionEpoch:        -1, // no session
		Topics:              reuse(f.Topics),
		Partitions:          reuse(f.Partitions),
		Forgotten:           reuse(f.Forgotten),
		ForgottenPartitions: reuse(f.ForgottenPartitions),
	}
	if version <= 14 {
		f.ReplicaID = r.Int32()
	}
	f.MaxWaitMillis = r.Int32()
	f.MinBytes = r.Int32()
	f.MaxBytes = r.Int32()
	f.Isolation = r.Int8()
	if version >= 7 {
		f.SessionID = r.Int32()
		f.SessionEpoch = r.Int32()
	}
	for n := r.ArrayLen(6); n > 0 && r.err == nil; n-- {
		t := fetchTopic(&r, version)
		t.From = len(f.Partitions)
		m := r.ArrayLen(16)
		if len(f.Partitions)+m+len(f.Topics) > maxPartitions {
			return ErrTooMany
		}
		for ; m > 0 && r.err == nil; m-- {
			f.Partitions = append(f.Partitions, fetchPartition(&r, version))
		}
		r.SkipTags()
		t.Below = len(f.Partitions)
		f.Topics = append(f.Topics, t)
	}
	if version >= 7 {
		f.parseForgotten(&r)
	}
	if version >= 11 {
		f.Rack = r.String()
	}
	for n := r.tagCount(); n > 0 && r.err == nil; n-- {
		switch num, c := r.tag(); {
		case num == 0:
			f.ClusterID = c.NullableString()
			r.join(&c)
		case num == 1 && version >= 15:
			f.ReplicaID = c.Int32()
			f.ReplicaEpoch = c.Int64()
			c.SkipTags()
			r.join(&c)
		}
	}
	return r.err
}

// join makes the failure of a part, read by its own reader, the whole's.
func (r *Reader) join(part *Reader) {
	if part.err != nil {
		r.fail(part.err)
	}
}

func fetchTopic(r *Reader, version int16) (t FetchTopic) {
	if version >= 13 {
		t.ID = r.UUID()
	} else {
		t.Name = r.String()
	}
	return t
}

func fetchPartition(r *Reader, version int16) FetchPartition {
	p := FetchPartition{LeaderEpoch: -1, LastEpoch: -1, LogStart: -1, HighWatermark: math.MaxInt64}
	p.Index = r.Int32()
	if version >= 9 {
		p.LeaderEpoch = r.Int32()
	}
	p.Offset = r.Int64()
	if version >= 12 {
		p.LastEpoch = r.Int32()
	}
	if version >= 5 {
		p.LogStart = r.Int64()
	}
	p.MaxBytes = r.Int32()
	for n := r.tagCount(); n > 0 && r.err == nil; n-- {
		// Tag 0, the directory of a replica, matters to KRaft's quorum only.
		if num, c := r.tag(); num == 1 && version >= 18 {
			p.HighWatermark = c.Int64()
			r.join(&c)
		}
	}
	return p
}

func (f *FetchRequest) parseForgotten(r *Reader) {
	for n := r.ArrayLen(6); n > 0 && r.err == nil; n-- {
		t := fetchTopic(r, f.Version)
		t.From = len(f.ForgottenPartitions)
		m := r.ArrayLen(4)
		if len(f.ForgottenPartitions)+m+len(f.Forgotten) > maxPartitions {
			r.fail(ErrTooMany)
			return
		}
		for ; m > 0 && r.err == nil; m-- {
			f.ForgottenPartitions = append(f.ForgottenPartitions, r.Int32())
		}
		r.SkipTags()
		t.Below = len(f.ForgottenPartitions)
		f.Forgotten = append(f.Forgotten, t)
	}
}

// FetchResponse appends a response to B, partition after partition, but for the
// records: who writes B to the connection puts the records of each partition at
// the place that Partition returned, where their length stands already.
type FetchResponse struct {
	B       []byte
	version int16
	flex    bool
	start   int
	records int
}

// FetchResult is the answer for a partition.
type FetchResult struct {
	Index         int32
	Code          int16
	HighWatermark int64
	Stable        int64
	LogStart      int64
	Aborted       []Aborted
	PreferredRead int32 // -1: none
	Records       int   // bytes that follow; 0 is empty, never null (librdkafka takes null for garbage)
	Leader        Leader
	DivergingEpoch
}

// Aborted is an aborted transaction.
type Aborted struct {
	ProducerID  int64
	FirstOffset int64
}

// DivergingEpoch tells a replica where to truncate to; Epoch -1: nowhere.
type DivergingEpoch struct {
	Epoch int32
	End   int64
}

// Begin appends the head of a response to request version, up to the number of
// topics. code is the session's.
func (w *FetchResponse) Begin(version int16, correlation int32, code int16, session int32, topics int) {
	w.version, w.flex, w.start, w.records = version, FetchFlexible(version), len(w.B), 0
	w.B = BeginResponse(w.B, correlation, w.flex)
	w.B = append(w.B, 0, 0, 0, 0) // throttle time
	if version >= 7 {
		w.B = be.AppendUint16(w.B, uint16(code))
		w.B = be.AppendUint32(w.B, uint32(session))
	}
	w.B = appendArrayLen(w.B, topics, w.flex)
}

// Topic begins a topic of n partitions.
func (w *FetchResponse) Topic(name []byte, id [16]byte, n int) {
	if w.version >= 13 {
		w.B = append(w.B, id[:]...)
	} else {
		w.B = appendString(w.B, name, w.flex)
	}
	w.B = appendArrayLen(w.B, n, w.flex)
}

// Partition appends the answer for a partition and returns the place in B
// where its records go.
func (w *FetchResponse) Partition(p *FetchResult) int {
	b := be.AppendUint32(w.B, uint32(p.Index))
	b = be.AppendUint16(b, uint16(p.Code))
	b = be.AppendUint64(b, uint64(p.HighWatermark))
	b = be.AppendUint64(b, uint64(p.Stable))
	if w.version >= 5 {
		b = be.AppendUint64(b, uint64(p.LogStart))
	}
	b = appendArrayLen(b, len(p.Aborted), w.flex)
	for _, a := range p.Aborted {
		b = be.AppendUint64(b, uint64(a.ProducerID))
		b = be.AppendUint64(b, uint64(a.FirstOffset))
		if w.flex {
			b = append(b, 0)
		}
	}
	if w.version >= 11 {
		b = be.AppendUint32(b, uint32(p.PreferredRead))
	}
	b = appendArrayLen(b, p.Records, w.flex) // the lengths of bytes and of arrays look alike
	at := len(b)
	if w.flex {
		b = w.partitionTags(b, p)
	}
	w.records += p.Records
	w.B = b
	return at
}

func (w *FetchResponse) partitionTags(b []byte, p *FetchResult) []byte {
	diverging := p.DivergingEpoch.Epoch >= 0
	leader := p.Leader != NoLeader
	n := byte(0)
	if diverging {
		n++
	}
	if leader {
		n++
	}
	b = append(b, n)
	if diverging {
		b = append(b, 0, 13) // size: int32, int64 and no tags
		b = be.AppendUint32(b, uint32(p.DivergingEpoch.Epoch))
		b = be.AppendUint64(b, uint64(p.DivergingEpoch.End))
		b = append(b, 0)
	}
	if leader {
		b = appendLeader(b, 1, p.Leader)
	}
	return b
}

// EndTopic ends a topic.
func (w *FetchResponse) EndTopic() {
	if w.flex {
		w.B = append(w.B, 0)
	}
}

// End ends the response; nodes say where the leaders are that it names (v16).
func (w *FetchResponse) End(nodes []Node) {
	if w.flex {
		if w.version < 16 {
			nodes = nil
		}
		w.B = appendNodes(w.B, nodes)
	}
	EndResponse(w.B, w.start, w.records)
}
