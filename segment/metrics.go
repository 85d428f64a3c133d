package segment

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics is what a directory counts.
type metrics struct {
	reg       prometheus.Registerer
	flushes   prometheus.Histogram
	recovered prometheus.Counter
	cut       prometheus.Counter
	failed    prometheus.Counter
	repaired  prometheus.Counter
	all       []prometheus.Collector
}

func newMetrics(reg prometheus.Registerer, d *Dir) *metrics {
	m := &metrics{
		reg: reg,
		flushes: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "firn_segment_flush_seconds", Help: "Time that flushes of segment files took.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 4, 9),
		}),
		recovered: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "firn_segment_recovered_bytes_total", Help: "Bytes scanned because the last stop was not clean.",
		}),
		cut: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "firn_segment_cut_bytes_total", Help: "Bytes that recovery cut off because they were no whole batches.",
		}),
		failed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "firn_segment_failed_logs_total", Help: "Logs that an I/O error or damage has ended until restart or repair.",
		}),
		repaired: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "firn_segment_repaired_logs_total", Help: "Quarantined logs that were put back into service.",
		}),
	}
	gauge := func(name, help string, f func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, f)
	}
	m.all = []prometheus.Collector{m.flushes, m.recovered, m.cut, m.failed, m.repaired,
		gauge("firn_segment_disk_free_bytes", "Free bytes of the disk that holds the logs.", func() float64 { return float64(d.space.free.Load()) }),
		gauge("firn_segment_disk_low", "1 while the disk is below its reserve and appends are refused.", func() float64 {
			if d.space.low.Load() {
				return 1
			}
			return 0
		}),
		gauge("firn_segment_out_of_service_logs", "Logs that are out of service now: quarantined, or failed.", func() float64 {
			n := 0
			for _, l := range d.all() {
				if err := l.Err(); err != nil && !errors.Is(err, ErrClosed) {
					n++
				}
			}
			return float64(n)
		}),
		gauge("firn_segment_open_files", "Segment files that are open.", func() float64 {
			d.handles.mu.Lock()
			defer d.handles.mu.Unlock()
			return float64(len(d.handles.mu.open))
		}),
	}
	if reg != nil {
		for _, c := range m.all {
			reg.MustRegister(c)
		}
	}
	return m
}

func (m *metrics) unregister() {
	if m.reg == nil {
		return
	}
	for _, c := range m.all {
		m.reg.Unregister(c)
	}
}
