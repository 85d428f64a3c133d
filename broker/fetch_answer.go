package broker

import (
	"bytes"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"firn/broker/wire"
)

// writeFetchError answers a request with the code of its session alone.
func (c *conn) writeFetchError(h wire.RequestHeader, code int16) error {
	f := c.fetch
	f.resp.B = f.resp.B[:0]
	f.resp.Begin(h.Version, h.Correlation, code, noSession, 0)
	f.resp.End(nil)
	return c.writeResponse(f.resp.B, nil)
}

// writeFetch answers with what was read.
func (c *conn) writeFetch(h wire.RequestHeader, f *fetcher, s *session) error {
	id := int32(noSession)
	if s != nil {
		var code int16
		if id, code = f.selectNews(s); code != 0 {
			return c.writeFetchError(h, code)
		}
	}
	f.resp.B, f.bodies, f.nodes = f.resp.B[:0], f.bodies[:0], f.nodes[:0]
	f.resp.Begin(h.Version, h.Correlation, 0, id, f.groups())
	for i, n := f.next(0); i < len(f.parts); i, n = f.next(n) {
		f.resp.Topic(f.parts[i].name, f.parts[i].id, f.members(i, n))
		bytes, failed := 0, false
		for j := i; j < n; j++ {
			if p := &f.parts[j]; !p.skip {
				c.encode(f, p)
				bytes += p.res.Records.Len()
				failed = failed || p.code != 0
			}
		}
		f.resp.EndTopic()
		switch t := f.parts[i].t; {
		case f.replica.ID >= 0:
			c.countReplicated(f, i, n, bytes)
		case t != nil:
			t.stats.fetched(bytes, failed)
		}
	}
	f.resp.End(f.nodes)
	err := c.writeResponse(f.resp.B, f.bodies)
	clear(f.bodies)
	if cap(f.resp.B) > stage {
		f.resp.B = nil
	}
	return err
}

func (c *conn) encode(f *fetcher, p *fetchPart) {
	o := &p.res.Offsets
	r := wire.FetchResult{
		Index:          p.want.Index,
		Code:           p.code,
		HighWatermark:  o.HighWatermark,
		Stable:         o.Stable,
		LogStart:       o.LogStart,
		PreferredRead:  p.preferred,
		Records:        p.res.Records.Len(),
		Leader:         wire.NoLeader,
		DivergingEpoch: wire.DivergingEpoch{Epoch: p.diverging.Epoch, End: p.diverging.End},
	}
	f.aborted = f.aborted[:0]
	for _, a := range p.res.Aborted {
		f.aborted = append(f.aborted, wire.Aborted{ProducerID: a.ProducerID, FirstOffset: a.First})
	}
	r.Aborted = f.aborted
	if p.t != nil && (p.code == kerr.NotLeaderForPartition.Code || p.code == kerr.FencedLeaderEpoch.Code) {
		r.Leader = p.t.leader(p.want.Index)
		f.nodes = c.s.b.appendNode(f.nodes, c.listener, r.Leader)
	}
	at := f.resp.Partition(&r)
	if r.Records > 0 {
		f.bodies = append(f.bodies, body{at, &p.res.Records})
	}
}

// selectNews notes in the session what the client is told now, and leaves out
// what is no news. Another request may have used the session meanwhile: an error.
func (f *fetcher) selectNews(s *session) (id int32, code int16) {
	full := f.req.SessionEpoch == initialEpoch
	expected := nextEpoch(f.req.SessionEpoch)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch != expected {
		return 0, kerr.InvalidFetchSessionEpoch.Code
	}
	if s.replica.ID >= 0 {
		s.answered = time.Now()
	}
	for i := range f.parts {
		p := &f.parts[i]
		if p.told == nil {
			continue
		}
		news := p.told.newsLocked(p.code, p.res.Records.Len(), &p.res.Offsets, p.diverging.Epoch >= 0 || p.preferred >= 0)
		p.skip = !full && !news
		if p.told.epoch = p.want.LeaderEpoch; p.code != 0 {
			p.told.epoch = -1
		}
		if p.res.Records.Len() > 0 {
			s.toEnd(p.told)
		}
	}
	return s.id, 0
}

// next finds the next run, from i on, of partitions of one topic that isn't left
// out altogether: parts[from:below].
func (f *fetcher) next(i int) (from, below int) {
	for i < len(f.parts) && f.parts[i].skip {
		i++
	}
	n := i
	for n < len(f.parts) && (f.parts[n].skip || f.sameTopic(i, n)) {
		n++
	}
	return i, n
}

func (f *fetcher) sameTopic(i, j int) bool {
	a, b := &f.parts[i], &f.parts[j]
	return bytes.Equal(a.name, b.name) && a.id == b.id
}

// groups counts the runs.
func (f *fetcher) groups() (k int) {
	for i, n := f.next(0); i < len(f.parts); i, n = f.next(n) {
		k++
	}
	return k
}

// members counts what isn't left out of a run.
func (f *fetcher) members(from, below int) (k int) {
	for i := from; i < below; i++ {
		if !f.parts[i].skip {
			k++
		}
	}
	return k
}
