package broker

import (
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"firn/replication/meta"
)

// topicStats counts what goes in and out of a topic on this broker. It lives as
// long as the topic does, over all pictures of it.
type topicStats struct {
	bytesIn, bytesOut, messagesIn  atomic.Int64
	produceRequests, fetchRequests atomic.Int64
	failedProduces, failedFetches  atomic.Int64
}

// produced counts what a Produce request did to the topic. A nil topicStats
// counts nothing.
func (s *topicStats) produced(bytes int, records int64, failed bool) {
	if s == nil {
		return
	}
	s.produceRequests.Add(1)
	s.bytesIn.Add(int64(bytes))
	s.messagesIn.Add(records)
	if failed {
		s.failedProduces.Add(1)
	}
}

// fetched counts what a Fetch request got of the topic.
func (s *topicStats) fetched(bytes int, failed bool) {
	if s == nil {
		return
	}
	s.fetchRequests.Add(1)
	s.bytesOut.Add(int64(bytes))
	if failed {
		s.failedFetches.Add(1)
	}
}

// clusterMetrics shows topics, partitions and logs as they stand when somebody
// scrapes: nothing is kept up for it in between. Names are those of the JMX
// exporter with Strimzi's rules, and of kafka_exporter.
type clusterMetrics struct {
	b       *Broker
	topic   map[string]*prometheus.Desc
	part    map[string]*prometheus.Desc
	cluster map[string]*prometheus.Desc
}

const uncleanElections = "kafka_controller_controllerstats_uncleanleaderelections_total"

func newClusterMetrics(b *Broker) *clusterMetrics {
	m := &clusterMetrics{b: b, topic: map[string]*prometheus.Desc{}, part: map[string]*prometheus.Desc{}, cluster: map[string]*prometheus.Desc{}}
	describe := func(to map[string]*prometheus.Desc, labels []string, rows ...string) {
		for i := 0; i < len(rows); i += 2 {
			to[rows[i]] = prometheus.NewDesc(rows[i], rows[i+1], labels, nil)
		}
	}
	describe(m.topic, []string{"topic"},
		"kafka_server_brokertopicmetrics_bytesin_total", "Bytes of records that producers appended.",
		"kafka_server_brokertopicmetrics_bytesout_total", "Bytes of records sent to consumers.",
		"kafka_server_brokertopicmetrics_messagesin_total", "Records that producers appended.",
		"kafka_server_brokertopicmetrics_totalproducerequests_total", "Produce requests that named the topic.",
		"kafka_server_brokertopicmetrics_totalfetchrequests_total", "Fetch requests that named the topic.",
		"kafka_server_brokertopicmetrics_failedproducerequests_total", "Produce requests in which a partition of the topic failed.",
		"kafka_server_brokertopicmetrics_failedfetchrequests_total", "Fetch requests in which a partition of the topic failed.",
		"kafka_topic_partitions", "Partitions of the topic.",
	)
	describe(m.part, []string{"topic", "partition"},
		"kafka_log_log_size", "Bytes of the log on the local disk.",
		"kafka_log_log_logstartoffset", "First offset of the log, archive included.",
		"kafka_log_log_logendoffset", "Offset that the next record gets.",
		"kafka_log_log_numlogsegments", "Segments on the local disk.",
		"kafka_cluster_partition_underminisr", "1 if fewer replicas are in sync than min.insync.replicas.",
		"kafka_cluster_partition_atminisr", "1 if exactly min.insync.replicas are in sync.",
		"kafka_topic_partition_current_offset", "End of what is committed.",
		"kafka_topic_partition_oldest_offset", "First offset.",
		"kafka_topic_partition_in_sync_replica", "Replicas in sync.",
		"kafka_topic_partition_leader", "Broker that leads.",
		"kafka_topic_partition_leader_is_preferred", "1 if the first replica leads.",
		"kafka_topic_partition_replicas", "Replicas.",
		"kafka_topic_partition_under_replicated_partition", "1 if a replica is not in sync.",
	)
	describe(m.cluster, nil,
		"kafka_brokers", "Registered brokers.",
		"firn_broker_disk_full", "1 while this broker has others lead because its disk is full.",
		"kafka_server_replicamanager_leadercount", "Partitions that this broker leads.",
		"kafka_server_replicamanager_partitioncount", "Partitions that this broker hosts.",
		"kafka_server_replicamanager_offlinereplicacount", "Hosted logs that are out of service.",
		"kafka_server_replicamanager_underreplicatedpartitions", "Partitions led here that lack replicas in sync.",
		"kafka_server_replicamanager_underminisrpartitioncount", "Partitions led here below min.insync.replicas.",
		"kafka_server_replicamanager_atminisrpartitioncount", "Partitions led here at min.insync.replicas.",
		"kafka_controller_kafkacontroller_activecontrollercount", "1 on the controller.",
		"kafka_controller_kafkacontroller_globaltopiccount", "Topics, on the controller.",
		"kafka_controller_kafkacontroller_activebrokercount", "Registered brokers, on the controller.",
		"kafka_controller_kafkacontroller_fencedbrokercount", "Brokers that were registered and are away, on the controller.",
		"firn_controller_reassigning_partitions", "Partitions that are being reassigned, on the controller.",
		"kafka_controller_kafkacontroller_globalpartitioncount", "Partitions, on the controller.",
		"kafka_controller_kafkacontroller_offlinepartitionscount", "Partitions without a leader, on the controller.",
		"kafka_controller_kafkacontroller_preferredreplicaimbalancecount", "Partitions not led by their first replica, on the controller.",
		uncleanElections, "Leaders that this broker, as controller, has elected though they may lack committed records.",
	)
	return m
}

// Describe sends every description.
func (m *clusterMetrics) Describe(c chan<- *prometheus.Desc) {
	for _, set := range []map[string]*prometheus.Desc{m.topic, m.part, m.cluster} {
		for _, d := range set {
			c <- d
		}
	}
}

// Collect draws the present picture.
func (m *clusterMetrics) Collect(c chan<- prometheus.Metric) {
	x := m.b.topics.Load()
	counts := map[string]float64{"kafka_brokers": float64(len(x.brokers))}
	for _, t := range x.byName {
		m.collectTopic(c, t)
		for p := range t.Replicas {
			m.collectPartition(c, t, int32(p), counts)
		}
	}
	counts["kafka_server_replicamanager_offlinereplicacount"] = float64(len(m.b.replicas.outages(x)))
	counts["firn_broker_disk_full"] = one(x.isFull(m.b.cfg.NodeID))
	if x.controller == m.b.cfg.NodeID {
		counts["kafka_controller_kafkacontroller_activecontrollercount"] = 1
		counts["kafka_controller_kafkacontroller_globaltopiccount"] = float64(len(x.byName))
		counts["kafka_controller_kafkacontroller_activebrokercount"] = float64(len(x.brokers))
		counts["kafka_controller_kafkacontroller_fencedbrokercount"] = float64(len(x.away()))
		for _, t := range x.byName {
			for p := range t.Replicas {
				counts["firn_controller_reassigning_partitions"] += one(t.Moving(int32(p)))
			}
		}
	} else {
		for _, global := range []string{"globalpartitioncount", "offlinepartitionscount", "preferredreplicaimbalancecount"} {
			delete(counts, "kafka_controller_kafkacontroller_"+global)
		}
	}
	for name, d := range m.cluster {
		if name == uncleanElections {
			c <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(m.b.unclean.Load()))
			continue
		}
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, counts[name])
	}
}

func (m *clusterMetrics) collectTopic(c chan<- prometheus.Metric, t *topic) {
	counter := func(name string, n *atomic.Int64) {
		c <- prometheus.MustNewConstMetric(m.topic["kafka_server_brokertopicmetrics_"+name+"_total"], prometheus.CounterValue, float64(n.Load()), t.Name)
	}
	counter("bytesin", &t.stats.bytesIn)
	counter("bytesout", &t.stats.bytesOut)
	counter("messagesin", &t.stats.messagesIn)
	counter("totalproducerequests", &t.stats.produceRequests)
	counter("totalfetchrequests", &t.stats.fetchRequests)
	counter("failedproducerequests", &t.stats.failedProduces)
	counter("failedfetchrequests", &t.stats.failedFetches)
	c <- prometheus.MustNewConstMetric(m.topic["kafka_topic_partitions"], prometheus.GaugeValue, float64(len(t.Replicas)), t.Name)
}

func (m *clusterMetrics) collectPartition(c chan<- prometheus.Metric, t *topic, p int32, counts map[string]float64) {
	s := &t.states[p]
	minISR := min(max(t.settings.MinInsyncReplicas, 1), len(t.Replicas[p]))
	under, at, lacking := len(s.ISR) < minISR, len(s.ISR) == minISR, len(s.ISR) < len(t.Replicas[p])
	preferred := len(t.Replicas[p]) > 0 && s.Leader.ID == t.Replicas[p][0]
	const controller = "kafka_controller_kafkacontroller_"
	counts[controller+"globalpartitioncount"]++
	if s.Leader.ID == meta.NoLeader.ID {
		counts[controller+"offlinepartitionscount"]++
	}
	if !preferred {
		counts[controller+"preferredreplicaimbalancecount"]++
	}

	r := m.b.replicas.get(t.ID, p)
	if r == nil {
		return
	}
	const manager = "kafka_server_replicamanager_"
	counts[manager+"partitioncount"]++
	number := strconv.Itoa(int(p))
	gauge := func(name string, v float64) {
		c <- prometheus.MustNewConstMetric(m.part[name], prometheus.GaugeValue, v, t.Name, number)
	}
	o := r.local.Offsets()
	gauge("kafka_log_log_size", float64(r.local.Size()))
	gauge("kafka_log_log_logstartoffset", float64(o.LogStart))
	gauge("kafka_log_log_logendoffset", float64(o.End))
	gauge("kafka_log_log_numlogsegments", float64(r.local.SegmentCount()))
	if _, _, here := r.part.Leader(); !here {
		return
	}
	counts[manager+"leadercount"]++
	counts[manager+"underreplicatedpartitions"] += one(lacking)
	counts[manager+"underminisrpartitioncount"] += one(under)
	counts[manager+"atminisrpartitioncount"] += one(at)
	gauge("kafka_cluster_partition_underminisr", one(under))
	gauge("kafka_cluster_partition_atminisr", one(at))
	gauge("kafka_topic_partition_current_offset", float64(o.HighWatermark))
	gauge("kafka_topic_partition_oldest_offset", float64(o.LogStart))
	gauge("kafka_topic_partition_in_sync_replica", float64(len(s.ISR)))
	gauge("kafka_topic_partition_leader", float64(s.Leader.ID))
	gauge("kafka_topic_partition_leader_is_preferred", one(preferred))
	gauge("kafka_topic_partition_replicas", float64(len(t.Replicas[p])))
	gauge("kafka_topic_partition_under_replicated_partition", one(lacking))
}

func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
