package meta

// noteJSON is a Note as it stands in the store: partitions grouped by topic, so
// that a commit of 500 states stays far below MaxBytes.
type noteJSON struct {
	Topics     []string           `json:"topics,omitempty"`
	Partitions map[string][]int32 `json:"partitions,omitempty"`
	Configs    []string           `json:"configs,omitempty"`
	Brokers    bool               `json:"brokers,omitempty"`
	Elections  bool               `json:"elections,omitempty"`
}

// Encode is the value of an Announce.
func (n Note) Encode() []byte {
	j := noteJSON{Topics: n.Topics, Configs: n.Configs, Brokers: n.Brokers, Elections: n.Elections}
	if len(n.Partitions) > 0 {
		j.Partitions = make(map[string][]int32)
		for _, tp := range n.Partitions {
			j.Partitions[tp.Topic] = append(j.Partitions[tp.Topic], tp.Partition)
		}
	}
	return encode(j)
}

// DecodeNote reads what Encode wrote. The number is the store's to set.
func DecodeNote(b []byte) (Note, error) {
	var j noteJSON
	if err := decode("note", b, &j); err != nil {
		return Note{}, err
	}
	n := Note{Topics: j.Topics, Configs: j.Configs, Brokers: j.Brokers, Elections: j.Elections}
	for topic, ps := range j.Partitions {
		for _, p := range ps {
			n.Partitions = append(n.Partitions, TopicPartition{topic, p})
		}
	}
	return n, nil
}

// IsZero: nothing to tell.
func (n Note) IsZero() bool {
	return len(n.Topics) == 0 && len(n.Partitions) == 0 && len(n.Configs) == 0 && !n.Brokers && !n.Elections
}

// merge adds what m tells.
func (n *Note) merge(m Note) {
	n.Topics = append(n.Topics, m.Topics...)
	n.Partitions = append(n.Partitions, m.Partitions...)
	n.Configs = append(n.Configs, m.Configs...)
	n.Brokers = n.Brokers || m.Brokers
	n.Elections = n.Elections || m.Elections
}
