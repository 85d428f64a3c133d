//go:build linux

package main

import (
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sys/unix"
)

func (c *conn) slow(key, ver int16, corr int32, body []byte) error {
	req := kmsg.RequestForKey(key)
	if req == nil {
		return fmt.Errorf("key %d", key)
	}
	if key == 18 && ver > 3 {
		rs := apiVersions(0)
		rs.ErrorCode = 35
		return c.write(corr, rs, false)
	}
	req.SetVersion(ver)
	flex := req.IsFlexible()
	if flex { // skip header tags
		body = body[1:]
	}
	if err := req.ReadFrom(append([]byte(nil), body...)); err != nil {
		return fmt.Errorf("key %d v%d: %w", key, ver, err)
	}
	var resp kmsg.Response
	switch r := req.(type) {
	case *kmsg.ApiVersionsRequest:
		return c.write(corr, apiVersions(ver), false)
	case *kmsg.MetadataRequest:
		rs := r.ResponseKind().(*kmsg.MetadataResponse)
		rs.Version = ver
		br := kmsg.NewMetadataResponseBroker()
		br.NodeID, br.Host, br.Port = 0, "127.0.0.1", int32(*port)
		rs.Brokers = append(rs.Brokers, br)
		rs.ControllerID = 0
		add := func(t *topic, name string) {
			mt := kmsg.NewMetadataResponseTopic()
			mt.Topic = new(name)
			if t == nil {
				mt.ErrorCode = 3
			} else {
				for i := range t.parts {
					p := kmsg.NewMetadataResponseTopicPartition()
					p.Partition, p.Leader, p.LeaderEpoch, p.Replicas, p.ISR = int32(i), 0, 0, []int32{0}, []int32{0}
					mt.Partitions = append(mt.Partitions, p)
				}
			}
			rs.Topics = append(rs.Topics, mt)
		}
		if r.Topics == nil {
			topics.Range(func(k, v any) bool { add(v.(*topic), k.(string)); return true })
		}
		for _, t := range r.Topics {
			add(lookup([]byte(*t.Topic)), *t.Topic)
		}
		resp = rs
	case *kmsg.CreateTopicsRequest:
		rs := r.ResponseKind().(*kmsg.CreateTopicsResponse)
		for _, t := range r.Topics {
			ct := kmsg.NewCreateTopicsResponseTopic()
			ct.Topic = t.Topic
			if lookup([]byte(t.Topic)) != nil {
				ct.ErrorCode = 36
			} else {
				newTopic(t.Topic, max(1, int(t.NumPartitions)))
			}
			rs.Topics = append(rs.Topics, ct)
		}
		resp = rs
	case *kmsg.DeleteTopicsRequest:
		rs := r.ResponseKind().(*kmsg.DeleteTopicsResponse)
		for _, n := range r.TopicNames {
			if t := lookup([]byte(n)); t != nil {
				topics.Delete(n)
				for _, p := range t.parts {
					os.Remove(p.f.Name())
					p.f.Close()
				}
			}
			dt := kmsg.NewDeleteTopicsResponseTopic()
			dt.Topic = new(n)
			rs.Topics = append(rs.Topics, dt)
		}
		resp = rs
	case *kmsg.ListOffsetsRequest:
		rs := r.ResponseKind().(*kmsg.ListOffsetsResponse)
		for _, t := range r.Topics {
			lt := kmsg.NewListOffsetsResponseTopic()
			lt.Topic = t.Topic
			tt := lookup([]byte(t.Topic))
			for _, p := range t.Partitions {
				lp := kmsg.NewListOffsetsResponseTopicPartition()
				lp.Partition, lp.LeaderEpoch, lp.Timestamp = p.Partition, 0, -1
				if tt == nil {
					lp.ErrorCode = 3
				} else if p.Timestamp == -1 {
					pp := tt.parts[p.Partition]
					pp.mu.Lock()
					lp.Offset = pp.next
					pp.mu.Unlock()
				} else if p.Timestamp == -2 {
					lp.Offset = 0
				} else if p.Timestamp < -2 {
					lp.ErrorCode = 35
				}
				lt.Partitions = append(lt.Partitions, lp)
			}
			rs.Topics = append(rs.Topics, lt)
		}
		resp = rs
	case *kmsg.ProduceRequest: // the easy way, for comparison
		rs := r.ResponseKind().(*kmsg.ProduceResponse)
		for _, t := range r.Topics {
			pt := kmsg.NewProduceResponseTopic()
			pt.Topic = t.Topic
			tt := lookup([]byte(t.Topic))
			for _, p := range t.Partitions {
				pp := kmsg.NewProduceResponseTopicPartition()
				pp.Partition = p.Partition
				pp.BaseOffset, pp.ErrorCode = tt.parts[p.Partition].appendBatches(p.Records)
				pt.Partitions = append(pt.Partitions, pp)
			}
			rs.Topics = append(rs.Topics, pt)
		}
		if r.Acks == 0 {
			return nil
		}
		resp = rs
	case *kmsg.FetchRequest:
		rs := r.ResponseKind().(*kmsg.FetchResponse)
		deadline := time.Now().Add(time.Duration(r.MaxWaitMillis) * time.Millisecond)
		for {
			var tot int64
			rs.Topics = rs.Topics[:0]
			for _, t := range r.Topics {
				ft := kmsg.NewFetchResponseTopic()
				ft.Topic = t.Topic
				tt := lookup([]byte(t.Topic))
				for _, p := range t.Partitions {
					fp := kmsg.NewFetchResponseTopicPartition()
					fp.Partition = p.Partition
					pp := tt.parts[p.Partition]
					pos, n, hw, code := pp.locate(p.FetchOffset, int64(p.PartitionMaxBytes))
					fp.HighWatermark, fp.LastStableOffset, fp.ErrorCode = hw, hw, code
					fp.LogStartOffset = 0
					if n > 0 {
						fp.RecordBatches = make([]byte, n)
						pp.f.ReadAt(fp.RecordBatches, pos)
					}
					tot += n
					ft.Partitions = append(ft.Partitions, fp)
				}
				rs.Topics = append(rs.Topics, ft)
			}
			if tot >= int64(r.MinBytes) || !time.Now().Before(deadline) {
				break
			}
			time.Sleep(time.Millisecond)
		}
		resp = rs
	default:
		return fmt.Errorf("key %d not served", key)
	}
	resp.SetVersion(ver)
	return c.write(corr, resp, flex)
}

func (c *conn) write(corr int32, rs kmsg.Response, flex bool) error {
	o := append(c.out[:0], 0, 0, 0, 0)
	o = be.AppendUint32(o, uint32(corr))
	if flex {
		o = append(o, 0)
	}
	o = rs.AppendTo(o)
	be.PutUint32(o, uint32(len(o)-4))
	c.out = o
	return c.flushOut()
}

func apiVersions(ver int16) *kmsg.ApiVersionsResponse {
	rs := kmsg.NewPtrApiVersionsResponse()
	rs.Version = ver
	for _, k := range [][3]int16{{0, 3, 8}, {1, 4, 11}, {2, 1, 5}, {3, 1, 8}, {18, 0, 3}, {19, 2, 4}, {20, 1, 3}} {
		a := kmsg.NewApiVersionsResponseApiKey()
		a.ApiKey, a.MinVersion, a.MaxVersion = k[0], k[1], k[2]
		rs.ApiKeys = append(rs.ApiKeys, a)
	}
	return rs
}

func main() {
	flag.Parse()
	debug.SetGCPercent(*gogc)
	os.MkdirAll(*dir, 0o755)
	if *pprofAt != "" {
		go http.ListenAndServe(*pprofAt, nil)
	}
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", *port))
	if err != nil {
		panic(err)
	}
	for {
		c, err := l.Accept()
		if err != nil {
			panic(err)
		}
		if *sndbuf > 0 {
			c.(*net.TCPConn).SetWriteBuffer(*sndbuf)
		}
		if *rcvbuf > 0 {
			c.(*net.TCPConn).SetReadBuffer(*rcvbuf)
		}
		if *lowat > 0 {
			rc, _ := c.(*net.TCPConn).SyscallConn()
			rc.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, *lowat) })
		}
		go serve(c.(*net.TCPConn))
	}
}
