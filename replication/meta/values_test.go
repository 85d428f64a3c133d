package meta

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

var (
	idA    = TopicID{0: 1, 15: 2}
	stateA = PartitionState{
		ControllerEpoch: 3,
		Leader:          Member{1, 10},
		LeaderEpoch:     7,
		ISR:             []Member{{1, 10}, {2, 20}},
		Eligible:        []Member{{3, 5}},
	}
)

// The values as they stand in the store. Where Kafka has one with ZooKeeper, its
// fields are all there, under its names.
func TestValuesInTheStore(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want string
	}{
		{"state", string(AppendState(nil, stateA)),
			`{"controller_epoch":3,"leader":1,"version":1,"leader_epoch":7,"isr":[1,2],"broker_epoch":10,"isr_epochs":[10,20],"eligible":[3],"eligible_epochs":[5]}`},
		{"leader none", string(AppendState(nil, PartitionState{Leader: NoLeader})),
			`{"controller_epoch":0,"leader":-1,"version":1,"leader_epoch":0,"isr":[],"broker_epoch":-1,"isr_epochs":[]}`},
		{"topic", string(encodeTopic(Topic{ID: idA, Replicas: [][]int32{{1, 2}, {2}}, Adding: map[int32][]int32{1: {2}}})),
			`{"version":3,"topic_id":"AQAAAAAAAAAAAAAAAAAAAg","partitions":{"0":[1,2],"1":[2]},"adding_replicas":{"1":[2]},"removing_replicas":{}}`},
		{"broker", string(encodeBroker(Broker{ID: 1, Epoch: 4, Rack: "r", StorageID: "s", Endpoints: []Endpoint{
			{"IN", "SASL_PLAINTEXT", "h", 1}, {"OUT", "PLAINTEXT", "::1", 9092},
		}})),
			`{"version":5,"listener_security_protocol_map":{"IN":"SASL_PLAINTEXT","OUT":"PLAINTEXT"},"endpoints":["IN://h:1","OUT://[::1]:9092"],"host":"::1","port":9092,"jmx_port":-1,"rack":"r","broker_epoch":4,"storage_id":"s"}`},
		{"config", string(encodeConfig(map[string]string{"b": "2", "a": "1"})), `{"version":1,"config":{"a":"1","b":"2"}}`},
		{"no config", string(encodeConfig(nil)), `{"version":1,"config":{}}`},
		{"registration", string(EncodeRegistration(Registration{Epoch: 2, ValidFrom: 1, StorageID: "s", BootID: "b", Clean: &CleanShutdown{2, "s", "n"}})),
			`{"version":1,"broker_epoch":2,"valid_from":1,"storage_id":"s","boot_id":"b","clean_shutdown":{"broker_epoch":2,"storage_id":"s","nonce":"n"}}`},
		{"note", string(Note{Topics: []string{"t"}, Partitions: []TopicPartition{{"t", 1}, {"t", 0}}, Brokers: true}.Encode()),
			`{"topics":["t"],"partitions":{"t":[1,0]},"brokers":true}`},
	} {
		if c.got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, c.got, c.want)
		}
	}
}

func TestValuesComeBack(t *testing.T) {
	node := func(b []byte) Node { return Node{Value: b, Version: 5, Rev: 6} }
	check := func(name string, got, want any, err error) {
		t.Helper()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %+v, %v\nwant %+v", name, got, err, want)
		}
	}
	state := stateA
	state.Version, state.Rev = 5, 6
	s, err := decodeState(node(AppendState(nil, state)))
	check("state", s, state, err)

	topic := Topic{
		Name: "t", ID: idA, Replicas: [][]int32{{1, 2}, {2, 3}}, Adding: map[int32][]int32{1: {3}}, Removing: map[int32][]int32{1: {2}},
		Deleting: true, Version: 5, Rev: 6,
	}
	tt, err := DecodeTopic("t", node(encodeTopic(topic)))
	check("topic", tt, topic, err)

	broker := Broker{ID: 1, Epoch: 4, Rack: "r", StorageID: "s", Endpoints: []Endpoint{{"IN", "SSL", "h", 1}, {"OUT", "PLAINTEXT", "::1", 65535}}}
	b, err := decodeBroker(1, node(encodeBroker(broker)))
	check("broker", b, broker, err)

	reg := Registration{ID: 1, Epoch: 4, ValidFrom: 2, StorageID: "s", BootID: "b", Clean: &CleanShutdown{4, "s", "n"}, Version: 5, Rev: 6}
	r, err := decodeRegistration(1, node(EncodeRegistration(reg)))
	check("registration", r, reg, err)

	pointer := Pointer{ManifestKey: "k", ManifestSize: 1, ManifestCRC: 1<<32 - 1, Sequence: 9, LastEpoch: 3, LogStart: 4, ArchivedEnd: 5, Version: 5, Rev: 6}
	p, err := decodePointer(node(EncodePointer(pointer)))
	check("pointer", p, pointer, err)

	offline := Offline{Broker: 1, Draining: 4, Full: 3, Version: 5, Rev: 6}
	offline.Add(Lost{idA, 2}, Lost{idA, 0}, Lost{idA, 2})
	o, err := decodeOffline(1, node(encodeOffline(offline)))
	check("offline", o, offline, err)
	if !o.Lists(idA, 0) || o.Lists(idA, 1) || !o.Lists(idA, 2) {
		t.Errorf("offline lists %v", o.Partitions)
	}
	o.Remove(Lost{idA, 0}, Lost{idA, 2}, Lost{idA, 7})
	if len(o.Partitions) != 0 {
		t.Errorf("all taken off, still lists %v", o.Partitions)
	}

	config := Config{Values: map[string]string{"a": "1"}, Version: 5, Rev: 6}
	c, err := decodeConfig(node(encodeConfig(config.Values)))
	check("config", c, config, err)

	note := Note{Topics: []string{"t"}, Partitions: []TopicPartition{{"t", 1}, {"t", 0}}, Configs: []string{"brokers/1"}, Brokers: true}
	n, err := DecodeNote(note.Encode())
	check("note", n, note, err)

	purge, err := DecodePurge(idA, node(encodePurge(newPurge(topic, 77))))
	check("tombstone", purge, Purge{ID: idA, Name: "t", Partitions: 2, At: 77, Waiting: newPurge(topic, 0).Waiting, Version: 5}, err)
}

// The state that Kafka's own form lacks can't be made up: such a node is refused.
func TestMalformedValuesAreRefused(t *testing.T) {
	state := func(s string) error { _, err := decodeState(Node{Value: []byte(s)}); return err }
	topic := func(s string) error { _, err := DecodeTopic("t", Node{Value: []byte(s)}); return err }
	broker := func(s string) error { _, err := decodeBroker(1, Node{Value: []byte(s)}); return err }
	pointer := func(s string) error { _, err := decodePointer(Node{Value: []byte(s)}); return err }
	const id = `"topic_id":"AQAAAAAAAAAAAAAAAAAAAg"`
	for _, c := range []struct {
		decode func(string) error
		value  string
	}{
		{state, ``},
		{state, `[]`},
		{state, `{"version":2,"leader":1}`},
		{state, `{"version":1,"leader":-2}`},
		{state, `{"version":1,"leader":1,"leader_epoch":-1}`},
		{state, `{"version":1,"leader":1,"isr":[1]}`},
		{state, `{"version":1,"leader":1,"isr":[1,1],"isr_epochs":[1,1]}`},
		{state, `{"version":1,"leader":1,"isr":[-1],"isr_epochs":[1]}`},
		{topic, `{` + id + `,"partitions":{"1":[1]}}`},
		{topic, `{` + id + `,"partitions":{"0":[]}}`},
		{topic, `{` + id + `,"partitions":{"0":[1,1]}}`},
		{topic, `{` + id + `,"partitions":{"0":[1],"00":[2]}}`},
		{topic, `{` + id + `,"partitions":{"-1":[1]}}`},
		{topic, `{` + id + `,"partitions":{"0":[1]},"adding_replicas":{"1":[2]}}`},
		{topic, `{"topic_id":"short","partitions":{}}`},
		{topic, `{"topic_id":"AQAAAAAAAAAAAAAAAAAAA!","partitions":{}}`},
		{broker, `{"endpoints":["no port"],"listener_security_protocol_map":{}}`},
		{broker, `{"endpoints":["A://h:1"],"listener_security_protocol_map":{}}`},
		{broker, `{"endpoints":["A://h:65536"],"listener_security_protocol_map":{"A":"PLAINTEXT"}}`},
		{pointer, `{"version":1,"log_start":5,"archived_end":4}`},
		{pointer, `{"version":1,"log_start":-1,"archived_end":4}`},
		{pointer, `{"version":1,"manifest":"` + strings.Repeat("k", 2000) + `"}`},
		{pointer, `{"version":2}`},
		{pointer, `{"version":1}` + strings.Repeat(" ", MaxBytes)},
	} {
		if err := c.decode(c.value); !errors.Is(err, ErrFormat) {
			t.Errorf("%.100s: %v", c.value, err)
		}
	}
}

// FuzzDecode: whatever stands in the store is decoded or refused, and what was
// decoded comes back.
func FuzzDecode(f *testing.F) {
	f.Add(AppendState(nil, stateA))
	f.Add(encodeTopic(Topic{ID: idA, Replicas: [][]int32{{1, 2}, {2}}, Adding: map[int32][]int32{1: {2}}}))
	f.Add(encodeBroker(Broker{ID: 1, Endpoints: []Endpoint{{"A", "PLAINTEXT", "::1", 9092}}}))
	f.Add(EncodeRegistration(Registration{Epoch: 2, ValidFrom: 1, Clean: &CleanShutdown{2, "s", "n"}}))
	f.Add(EncodePointer(Pointer{ManifestKey: "k", ArchivedEnd: 3}))
	f.Add(encodeOffline(Offline{Partitions: map[TopicID][]int32{idA: {0, 1}}}))
	f.Add(encodeConfig(map[string]string{"a": "1"}))
	f.Add(Note{Partitions: []TopicPartition{{"t", 1}}}.Encode())
	f.Add([]byte(`{"version":1,"partitions":{"0":null}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		n := Node{Value: b}
		again := func(name string, first any, err error, decode func(Node) (any, error), encode func() []byte) {
			if err != nil {
				return
			}
			second, err := decode(Node{Value: encode()})
			if err != nil || !reflect.DeepEqual(first, second) {
				t.Errorf("%s: %+v came back as %+v, %v", name, first, second, err)
			}
		}
		s, err := decodeState(n)
		again("state", s, err, func(n Node) (any, error) { return decodeState(n) }, func() []byte { return AppendState(nil, s) })
		topic, err := DecodeTopic("t", n)
		again("topic", topic, err, func(n Node) (any, error) { return DecodeTopic("t", n) }, func() []byte { return encodeTopic(topic) })
		p, err := decodePointer(n)
		again("pointer", p, err, func(n Node) (any, error) { return decodePointer(n) }, func() []byte { return EncodePointer(p) })
		r, err := decodeRegistration(1, n)
		again("registration", r, err, func(n Node) (any, error) { return decodeRegistration(1, n) }, func() []byte { return EncodeRegistration(r) })
		broker, err := decodeBroker(1, n)
		again("broker", broker, err, func(n Node) (any, error) { return decodeBroker(1, n) }, func() []byte { return encodeBroker(broker) })
		_, _ = decodeOffline(1, n)
		_, _ = decodeConfig(n)
		_, _ = DecodeNote(b)
		_, _ = DecodePurge(idA, n)
		_, _ = decodeElection("e", n)
	})
}

// An older broker reads what a newer one has listed, and the other way round.
func TestOfflineListsOfOtherVersions(t *testing.T) {
	o, err := decodeOffline(1, Node{Value: []byte(`{"version":1,"partitions":{},"draining":4}`)})
	if err != nil || !o.Drains(4) || o.IsFull(4) || o.IsFull(0) {
		t.Errorf("without the field: %+v, %v", o, err)
	}
	var old struct {
		Version    int                `json:"version"`
		Partitions map[string][]int32 `json:"partitions"`
		Draining   int64              `json:"draining,omitempty"`
	}
	if err := decode("offline", encodeOffline(Offline{Broker: 1, Draining: 4, Full: 5}), &old); err != nil || old.Version != 1 || old.Draining != 4 {
		t.Errorf("read by who doesn't know the field: %+v, %v", old, err)
	}
	if got := string(encodeOffline(Offline{Broker: 1})); got != `{"version":1,"partitions":{}}` {
		t.Errorf("nothing given up: %s", got)
	}
}

func TestCheckPath(t *testing.T) {
	for _, path := range []string{"", "a", "/", "//", "/a/", "//a", "/a//b", "/.", "/..", "/a/./b", "/a\x00b", "/\x7f"} {
		if CheckPath(path) == nil {
			t.Errorf("%q passes", path)
		}
	}
	for _, path := range []string{"/a", "/a/b.c", "/config/brokers/<default>", "/ä"} {
		if err := CheckPath(path); err != nil {
			t.Error(err)
		}
	}
}
