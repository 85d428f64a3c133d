package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// handleDescribeLogDirs answers DescribeLogDirs: v1–5. Sizes are those of the
// local disk; what is archived doesn't count.
//
//	v3 an error of the whole answer
//	v4 total and usable bytes of the directory's file system
//	v5 IsCordoned: no directory is
func handleDescribeLogDirs(b *Broker, _ context.Context, r *request) kmsg.Response {
	req := r.msg.(*kmsg.DescribeLogDirsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeLogDirsResponse)
	dir := kmsg.NewDescribeLogDirsResponseDir()
	dir.Dir = b.cfg.LogDir
	dir.TotalBytes, dir.UsableBytes = -1, -1
	free, total, err := b.cfg.FS.Free(b.cfg.LogDir)
	if err != nil {
		b.log.Error("free space of the log directory", "err", err)
		dir.ErrorCode = kerr.KafkaStorageError.Code
	} else {
		dir.TotalBytes, dir.UsableBytes = total, free
	}

	x := b.topics.Load()
	if req.Topics == nil {
		for _, t := range x.sorted() {
			all := make([]int32, len(t.Replicas))
			for p := range all {
				all[p] = int32(p)
			}
			dir.Topics = b.appendLogDirTopic(dir.Topics, t, all)
		}
	} else {
		for _, t := range req.Topics {
			dir.Topics = b.appendLogDirTopic(dir.Topics, x.byName[t.Topic], t.Partitions)
		}
	}
	resp.Dirs = append(resp.Dirs, dir)
	return resp
}

// appendLogDirTopic adds those of the partitions that this broker hosts; none,
// then the topic isn't mentioned.
func (b *Broker) appendLogDirTopic(out []kmsg.DescribeLogDirsResponseDirTopic, t *topic, partitions []int32) []kmsg.DescribeLogDirsResponseDirTopic {
	if t == nil {
		return out
	}
	row := kmsg.NewDescribeLogDirsResponseDirTopic()
	row.Topic = t.Name
	for _, p := range partitions {
		r := b.replicas.get(t.ID, p)
		if r == nil {
			continue
		}
		at := r.local.Offsets()
		part := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
		part.Partition = p
		part.Size = r.local.Size()
		part.OffsetLag = max(at.HighWatermark-at.End, 0)
		row.Partitions = append(row.Partitions, part)
	}
	if len(row.Partitions) == 0 {
		return out
	}
	return append(out, row)
}
