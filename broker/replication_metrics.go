package broker

import "github.com/prometheus/client_golang/prometheus"

// newReplicationMetrics shows what replication does, under the names of the JMX
// exporter with Strimzi's rules.
func newReplicationMetrics(b *Broker) prometheus.Collector {
	fs := b.followers
	return collectors{
		counter("kafka_server_replicamanager_isrshrinks_total", "Members that leaders here have taken out of in-sync sets.", func() int64 { return b.inSync.shrinks.Load() }),
		counter("kafka_server_replicamanager_isrexpands_total", "Members that leaders here have added to in-sync sets.", func() int64 { return b.inSync.expands.Load() }),
		counter("kafka_server_brokertopicmetrics_replicationbytesin_total", "Bytes of records fetched from leaders.", fs.bytesIn.Load),
		counter("kafka_server_brokertopicmetrics_replicationbytesout_total", "Bytes of records sent to followers.", fs.bytesOut.Load),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "kafka_server_replicafetchermanager_maxlag",
			Help:        "Committed records that the replica furthest behind its leader lacks.",
			ConstLabels: prometheus.Labels{"clientId": "Replica"},
		}, func() float64 { return float64(fs.maxLag()) }),
	}
}

func counter(name, help string, of func() int64) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(of()) })
}

// collectors are several as one.
type collectors []prometheus.Collector

func (cs collectors) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range cs {
		c.Describe(ch)
	}
}

func (cs collectors) Collect(ch chan<- prometheus.Metric) {
	for _, c := range cs {
		c.Collect(ch)
	}
}
