package broker

import (
	"context"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"firn/replication"
	"firn/segment"
)

// The timestamps of ListOffsets that are questions of their own, with the
// version that knows them.
const (
	listLatest          = -1 // the end that the reader may see
	listEarliest        = -2 // log start
	listMaxTimestamp    = -3 // v7: the record with the largest timestamp
	listEarliestLocal   = -4 // v8: first offset on the local disk (KIP-405)
	listLatestArchived  = -5 // v9: last archived offset (KIP-1005)
	listEarliestPending = -6 // v11: first offset that isn't archived (KIP-1023)
)

// listSince[-ts] is the first version in which the special timestamp ts exists.
var listSince = [...]int16{listVersionNever, 1, 1, 7, 8, 9, 11}

const listVersionNever = 1 << 14

// maxLookups bounds the lookups by time of one request that run at once: each
// may wait for the archive.
const maxLookups = 16

// handleListOffsets answers ListOffsets: v1–11.
//
//	v2  isolation level
//	v4  current leader epoch in the request, epoch of the offset in the answer
//	v5  OFFSET_NOT_AVAILABLE after an election (before: LEADER_NOT_AVAILABLE)
//	v10 the client's timeout for lookups in the archive
func handleListOffsets(b *Broker, ctx context.Context, r *request) kmsg.Response {
	req := r.msg.(*kmsg.ListOffsetsRequest)
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	timeout := b.settings().Millis("remote.list.offsets.request.timeout.ms")
	if r.version >= 10 {
		timeout = time.Duration(req.TimeoutMillis) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	x := b.topics.Load()
	var lookups errgroup.Group
	lookups.SetLimit(maxLookups)
	seen := partitionSet{}
	resp.Topics = make([]kmsg.ListOffsetsResponseTopic, len(req.Topics))
	for i := range req.Topics {
		in, out := &req.Topics[i], &resp.Topics[i]
		out.Topic = in.Topic
		out.Partitions = make([]kmsg.ListOffsetsResponseTopicPartition, len(in.Partitions))
		for j := range in.Partitions {
			ask, answer := &in.Partitions[j], &out.Partitions[j]
			*answer = kmsg.NewListOffsetsResponseTopicPartition()
			answer.Partition = ask.Partition
			q := listQuery{log: b.log, version: r.version, until: isolation(req.IsolationLevel), timestamp: ask.Timestamp}
			switch {
			case seen.twice(in.Topic, ask.Partition):
				answer.ErrorCode = kerr.InvalidRequest.Code
				continue
			case !q.supported():
				answer.ErrorCode = kerr.UnsupportedVersion.Code
				continue
			case req.ReplicaID >= 0 && !b.fromReplica(x, r.listener, req.ReplicaID, in.Topic, ask.Partition):
				answer.ErrorCode = kerr.ClusterAuthorizationFailed.Code
				continue
			}
			part, err := x.hosted(in.Topic, ask.Partition)
			if err != nil {
				answer.ErrorCode = errorCode(err)
				continue
			}
			q.part, q.view = part, replication.View{Epoch: ask.CurrentLeaderEpoch, Replica: req.ReplicaID >= 0}
			q.archives = b.archive != nil && x.byName[in.Topic].settings.RemoteStorageEnable
			if q.byTime() {
				lookups.Go(func() error { q.answer(ctx, answer); return nil })
			} else {
				q.answer(ctx, answer)
			}
		}
	}
	_ = lookups.Wait() // answers carry their own errors
	return resp
}

// listQuery is the question about one partition.
type listQuery struct {
	log       *slog.Logger
	part      *replication.Partition
	view      replication.View
	version   int16
	until     segment.Until
	timestamp int64
	// archives: the topic's segments go to the archive. Of one that doesn't take
	// part any more Kafka answers as if nothing had ever been there.
	archives bool
}

// supported says whether the request's version knows this timestamp.
func (q *listQuery) supported() bool {
	if q.timestamp >= 0 {
		return true
	}
	return -q.timestamp < int64(len(listSince)) && q.version >= listSince[-q.timestamp]
}

// byTime says whether the answer needs records to be looked at.
func (q *listQuery) byTime() bool { return q.timestamp >= 0 || q.timestamp == listMaxTimestamp }

// isolation is how far a client of an isolation level reads.
func isolation(level int8) segment.Until {
	if level == 1 {
		return segment.UntilStable
	}
	return segment.UntilHighWatermark
}

func (q *listQuery) answer(ctx context.Context, out *kmsg.ListOffsetsResponseTopicPartition) {
	found, err := q.find(ctx)
	if err != nil {
		out.ErrorCode = q.code(ctx, err)
		return
	}
	out.Timestamp, out.Offset, out.LeaderEpoch = found.Timestamp, found.Offset, found.Epoch
}

// code keeps to the codes that consumers retry in silence. Above all a timeout
// must not be REQUEST_TIMED_OUT: librdkafka takes every code that it doesn't
// expect here for a reason to apply auto.offset.reset.
func (q *listQuery) code(ctx context.Context, err error) int16 {
	code := errorCode(err)
	switch {
	case ctx.Err() != nil, code == kerr.UnknownServerError.Code:
		q.log.Warn("lookup of an offset", "timestamp", q.timestamp, "err", err)
		return kerr.KafkaStorageError.Code
	case code == kerr.OffsetNotAvailable.Code && q.version < 5:
		return kerr.LeaderNotAvailable.Code
	}
	return code
}

// none is the answer where there is no such offset.
var none = segment.TimeOffset{Timestamp: -1, Offset: -1, Epoch: -1}

// find answers the question, as this partition's leader.
func (q *listQuery) find(ctx context.Context) (segment.TimeOffset, error) {
	lookup, err := q.part.Lookup(q.view)
	if err != nil {
		return none, err
	}
	if q.timestamp == listLatest {
		end, err := q.part.Latest(q.view, q.until)
		_, epoch, _ := q.part.Leader()
		return segment.TimeOffset{Timestamp: -1, Offset: end, Epoch: epoch}, err
	}
	if q.byTime() {
		if q.timestamp == listMaxTimestamp {
			return lookup.OffsetOfMaxTime(ctx, q.until)
		}
		return lookup.OffsetForTime(ctx, q.timestamp, q.until)
	}
	at, err := q.part.Offsets(q.view)
	if err != nil {
		return none, err
	}
	switch q.timestamp {
	case listEarliestLocal:
		return offsetAt(lookup, at.LocalStart), nil
	case listLatestArchived:
		if at.ArchivedEnd <= 0 || !q.archives {
			return none, nil
		}
		return offsetAt(lookup, at.ArchivedEnd-1), nil // the last one, not the end
	case listEarliestPending:
		if !q.archives {
			return none, nil
		}
		return offsetAt(lookup, max(at.ArchivedEnd, at.LogStart)), nil
	default: // listEarliest
		return offsetAt(lookup, at.LogStart), nil
	}
}

// offsetAt is an offset without a time, with its epoch.
func offsetAt(log replication.Lookup, offset int64) segment.TimeOffset {
	return segment.TimeOffset{Timestamp: -1, Offset: offset, Epoch: log.EpochAt(offset)}
}

// partitionSet notices partitions that a request names twice.
type partitionSet map[string]map[int32]bool

func (s partitionSet) twice(topic string, p int32) bool {
	m := s[topic]
	if m == nil {
		m = map[int32]bool{}
		s[topic] = m
	}
	if m[p] {
		return true
	}
	m[p] = true
	return false
}
