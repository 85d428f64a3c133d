package tiering

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the Archive's. What is per partition is summed up or the worst of
// all: Status has the rest.
type metrics struct {
	reg prometheus.Registerer
	all []prometheus.Collector

	uploads     *prometheus.CounterVec // by outcome
	uploadBytes prometheus.Counter
	uploadTime  prometheus.Histogram
	unsettled   prometheus.Counter
	deleted     prometheus.Counter
	swept       prometheus.Counter
	evicted     prometheus.Counter
	panics      prometheus.Counter
}

func newMetrics(a *Archive) *metrics {
	m := &metrics{reg: a.cfg.Registerer}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		m.all = append(m.all, c)
		return c
	}
	m.uploads = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "firn_tiering_uploads_total",
		Help: "Steps of uploaders that uploaded or published something, by outcome."}, []string{"outcome"})
	m.uploadTime = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "firn_tiering_upload_seconds",
		Help: "Time to put the two objects of a segment.", Buckets: prometheus.ExponentialBuckets(0.005, 2.5, 12)})
	m.all = append(m.all, m.uploads, m.uploadTime)
	m.uploadBytes = counter("firn_tiering_upload_bytes_total", "Bytes of segments and indexes uploaded.")
	m.unsettled = counter("firn_tiering_pointer_unsettled_total", "Pointer writes whose outcome had to be found out.")
	m.deleted = counter("firn_tiering_deleted_segments_total", "Segments deleted from the archive by retention.")
	m.swept = counter("firn_tiering_orphans_total", "Orphans that sweeps removed.")
	m.evicted = counter("firn_tiering_local_deleted_bytes_total", "Bytes of local segments deleted because the archive has them.")
	m.panics = counter("firn_tiering_panics_total", "Panics that the supervisor caught.")
	m.all = append(m.all, newGauges(a))
	for _, c := range m.all {
		_ = m.reg.Register(c) // a second Archive on one registry shares nothing; its metrics are lost, not its work
	}
	return m
}

// gauges are computed when they are asked for, all from one look at the partitions.
type gauges struct {
	a                        *Archive
	pending, oldest, failing *prometheus.Desc
}

func newGauges(a *Archive) *gauges {
	return &gauges{
		a:       a,
		pending: prometheus.NewDesc("firn_tiering_pending_bytes", "Bytes of led partitions that are not archived yet.", nil, nil),
		oldest:  prometheus.NewDesc("firn_tiering_oldest_pending_seconds", "Age of the oldest record of a led partition that is not archived yet.", nil, nil),
		failing: prometheus.NewDesc("firn_tiering_failing_partitions", "Led partitions whose last upload failed.", nil, nil),
	}
}

func (g *gauges) Describe(ch chan<- *prometheus.Desc) {
	ch <- g.pending
	ch <- g.oldest
	ch <- g.failing
}

func (g *gauges) Collect(ch chan<- prometheus.Metric) {
	var pending, oldest, failing float64
	for _, s := range g.a.Status() {
		if !s.Leading || !s.Copies {
			continue
		}
		pending += float64(s.PendingBytes)
		oldest = max(oldest, s.PendingAge.Seconds())
		if s.LastError != nil {
			failing++
		}
	}
	ch <- prometheus.MustNewConstMetric(g.pending, prometheus.GaugeValue, pending)
	ch <- prometheus.MustNewConstMetric(g.oldest, prometheus.GaugeValue, oldest)
	ch <- prometheus.MustNewConstMetric(g.failing, prometheus.GaugeValue, failing)
}

func (m *metrics) uploaded(bytes int64, took time.Duration) {
	m.uploadBytes.Add(float64(bytes))
	m.uploadTime.Observe(took.Seconds())
}

func (m *metrics) unregister() {
	for _, c := range m.all {
		m.reg.Unregister(c)
	}
}
