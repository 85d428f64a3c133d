package broker

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// metrics of the network side. A request costs a few atomic additions.
type metrics struct {
	byKey      [128]apiMetrics
	idleClosed prometheus.Counter
}

type apiMetrics struct {
	requests prometheus.Counter // nil: not served
	seconds  prometheus.Observer
}

func (m *apiMetrics) observe(d time.Duration) {
	if m.requests != nil {
		m.requests.Inc()
		m.seconds.Observe(d.Seconds())
	}
}

// newMetrics registers the metrics with reg, which may be nil.
func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kafka_network_requestmetrics_requests_total",
		Help: "Requests by API.",
	}, []string{"request"})
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "firn_broker_request_seconds",
		Help:    "Time from a whole request to its answer, waits included; acks that wait leave later.",
		Buckets: []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5, 30},
	}, []string{"request"})
	m := &metrics{
		idleClosed: counter("firn_broker_idle_connections_closed_total", "Connections closed because nothing moved on them."),
	}
	for _, a := range apis() {
		name := strings.ReplaceAll(kmsg.NameForKey(int16(a.key)), " ", "")
		m.byKey[a.key] = apiMetrics{requests.WithLabelValues(name), seconds.WithLabelValues(name)}
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{requests, seconds, m.idleClosed} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
