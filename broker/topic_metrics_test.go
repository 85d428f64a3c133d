package broker

import (
	"testing"
	"time"

	"firn/segment/batch"
)

func TestMetricsOfATopic(t *testing.T) {
	n := startNode(t, t.TempDir())
	n.create("t", 2)
	c := n.dial()
	records := n.batch(batch.Spec{}, time.Now().UnixMilli(), time.Now().UnixMilli(), time.Now().UnixMilli())
	size := float64(len(records))
	if p := produced(c.call(produceReq(9, -1, "t", 1, records))); p.ErrorCode != 0 {
		t.Fatalf("produce: code %d", p.ErrorCode)
	}
	if p := produced(c.call(produceReq(9, -1, "t", 0, []byte("no batch at all, but as long as the header of one would be ....")))); p.ErrorCode == 0 {
		t.Fatal("rubbish was appended")
	}
	if p := fetched(c.call(fetchReq(12, "t", 0, 1))); p.ErrorCode != 0 || float64(len(p.RecordBatches)) != size {
		t.Fatalf("fetch: code %d, %d bytes", p.ErrorCode, len(p.RecordBatches))
	}
	topic := "topic=t"
	for name, want := range map[string]float64{
		"bytesin": size, "bytesout": size, "messagesin": 3, "totalproducerequests": 2, "failedproducerequests": 1,
		"totalfetchrequests": 1, "failedfetchrequests": 0,
	} {
		if got := n.metric("kafka_server_brokertopicmetrics_"+name+"_total", topic); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	for name, want := range map[string]float64{
		"kafka_log_log_size": size, "kafka_log_log_logstartoffset": 0, "kafka_log_log_logendoffset": 3, "kafka_log_log_numlogsegments": 1,
		"kafka_topic_partition_current_offset": 3, "kafka_topic_partition_oldest_offset": 0, "kafka_topic_partition_leader": 1,
		"kafka_topic_partition_leader_is_preferred": 1, "kafka_topic_partition_in_sync_replica": 1, "kafka_topic_partition_replicas": 1,
		"kafka_topic_partition_under_replicated_partition": 0, "kafka_cluster_partition_underminisr": 0,
	} {
		if got := n.metric(name, topic, "partition=1"); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	for name, want := range map[string]float64{
		"kafka_brokers": 1, "kafka_topic_partitions": 2, "kafka_server_replicamanager_leadercount": 2, "kafka_server_replicamanager_partitioncount": 2,
		"kafka_server_replicamanager_offlinereplicacount": 0, "kafka_server_replicamanager_underreplicatedpartitions": 0,
		"kafka_controller_kafkacontroller_activecontrollercount": 1, "kafka_controller_kafkacontroller_globaltopiccount": 1,
		"kafka_controller_kafkacontroller_globalpartitioncount": 2, "kafka_controller_kafkacontroller_offlinepartitionscount": 0,
	} {
		if got := n.metric(name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if got := n.topics.Load().byName["t"].stats; got.messagesIn.Load() != 3 {
		t.Errorf("%d records counted", got.messagesIn.Load())
	}
	n.create("u", 1) // another picture
	if got := n.metric("kafka_server_brokertopicmetrics_messagesin_total", topic); got != 3 {
		t.Errorf("after another picture %v records", got)
	}
}
