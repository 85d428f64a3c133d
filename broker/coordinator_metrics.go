package broker

import (
	"strconv"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"firn/replication"
	"firn/segment"
)

// groupSeries bounds the series per partition that one scrape shows, over all
// groups. Beyond it groups have their sums alone.
const groupSeries = 20_000

// groupMetrics shows the groups coordinated here, under the names of
// kafka_exporter, as they stand when somebody scrapes. Lag is shown where this
// broker leads the partition.
type groupMetrics struct {
	c                                       *coordinator
	members, offset, offsets, lag, lagTotal *prometheus.Desc
}

func newGroupMetrics(c *coordinator) *groupMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("kafka_consumergroup_"+name, help, append([]string{"consumergroup"}, labels...), nil)
	}
	return &groupMetrics{
		c:        c,
		members:  desc("members", "Members of the group."),
		offset:   desc("current_offset", "Committed offset of the group.", "topic", "partition"),
		offsets:  desc("current_offset_sum", "Committed offsets of the group, all partitions together.", "topic"),
		lag:      desc("lag", "Records between the committed offset and the end of the partition.", "topic", "partition"),
		lagTotal: desc("lag_sum", "Records between the committed offsets and the ends of the partitions led here.", "topic"),
	}
}

// Describe sends every description.
func (m *groupMetrics) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.members, m.offset, m.offsets, m.lag, m.lagTotal} {
		c <- d
	}
}

// groupSnapshot is what a scrape sees of a group.
type groupSnapshot struct {
	name    string
	members int
	topics  map[string]map[int32]int64
}

// snapshots copies what there is to see of the shard's groups; the lock is not
// held while it is drawn.
func (s *shard) snapshots() []groupSnapshot {
	if s.enter() != nil {
		return nil
	}
	defer s.mu.Unlock()
	all := make([]groupSnapshot, 0, len(s.mu.groups))
	for name, h := range s.mu.groups {
		if !utf8.ValidString(name) {
			continue // it can't be a label
		}
		g := groupSnapshot{name: name, members: h.Size(), topics: map[string]map[int32]int64{}}
		for topic, offsets := range h.Offsets() {
			at := make(map[int32]int64, len(offsets))
			for p, o := range offsets {
				at[p] = o.Offset
			}
			g.topics[topic] = at
		}
		all = append(all, g)
	}
	return all
}

// Collect draws the groups.
func (m *groupMetrics) Collect(c chan<- prometheus.Metric) {
	x := m.c.topics()
	left := groupSeries
	gauge := func(d *prometheus.Desc, v int64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	for _, s := range m.c.list() {
		for _, g := range s.snapshots() {
			gauge(m.members, int64(g.members), g.name)
			for topic, at := range g.topics {
				var sum, lagSum int64
				for p, offset := range at {
					end, known := endOf(x.byName[topic].partition(p))
					lag := max(end-offset, 0)
					sum += offset
					if known {
						lagSum += lag
					}
					if left--; left < 0 {
						continue
					}
					number := strconv.Itoa(int(p))
					gauge(m.offset, offset, g.name, topic, number)
					if known {
						gauge(m.lag, lag, g.name, topic, number)
					}
				}
				gauge(m.offsets, sum, g.name, topic)
				gauge(m.lagTotal, lagSum, g.name, topic)
			}
		}
	}
}

// endOf is the end of what is committed in a partition that is led here.
func endOf(p *replication.Partition) (int64, bool) {
	if p == nil {
		return 0, false
	}
	end, err := p.Latest(replication.View{Epoch: replication.AnyEpoch}, segment.UntilHighWatermark)
	return end, err == nil
}
