package meta

import (
	"fmt"
	"strconv"
)

// stateJSON is the value of a partition's state: Kafka's version 1, and the
// broker epochs that make Members of ids (R6).
type stateJSON struct {
	ControllerEpoch int32   `json:"controller_epoch"`
	Leader          int32   `json:"leader"`
	Version         int     `json:"version"`
	LeaderEpoch     int32   `json:"leader_epoch"`
	ISR             []int32 `json:"isr"`
	BrokerEpoch     int64   `json:"broker_epoch"` // the leader's
	ISREpochs       []int64 `json:"isr_epochs"`
	Eligible        []int32 `json:"eligible"`
	EligibleEpochs  []int64 `json:"eligible_epochs"`
}

const (
	stateVersion = 1
	// maxMembers bounds what one state may name.
	maxMembers = 1000
)

// AppendState appends the value of s's node to b. It is written by hand, since a
// start or a failover writes thousands.
func AppendState(b []byte, s PartitionState) []byte {
	b = append(b, `{"controller_epoch":`...)
	b = strconv.AppendInt(b, int64(s.ControllerEpoch), 10)
	b = append(b, `,"leader":`...)
	b = strconv.AppendInt(b, int64(s.Leader.ID), 10)
	b = append(b, `,"version":1,"leader_epoch":`...)
	b = strconv.AppendInt(b, int64(s.LeaderEpoch), 10)
	b = append(b, `,"isr":`...)
	b = appendMembers(b, s.ISR, memberID)
	b = append(b, `,"broker_epoch":`...)
	b = strconv.AppendInt(b, s.Leader.Epoch, 10)
	b = append(b, `,"isr_epochs":`...)
	b = appendMembers(b, s.ISR, memberEpoch)
	if len(s.Eligible) > 0 {
		b = append(b, `,"eligible":`...)
		b = appendMembers(b, s.Eligible, memberID)
		b = append(b, `,"eligible_epochs":`...)
		b = appendMembers(b, s.Eligible, memberEpoch)
	}
	return append(b, '}')
}

func memberID(m Member) int64    { return int64(m.ID) }
func memberEpoch(m Member) int64 { return m.Epoch }

func appendMembers(b []byte, ms []Member, of func(Member) int64) []byte {
	b = append(b, '[')
	for i, m := range ms {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, of(m), 10)
	}
	return append(b, ']')
}

// decodeState reads the node of a partition's state.
func decodeState(n Node) (PartitionState, error) {
	const what = "partition state"
	j := stateJSON{BrokerEpoch: -1}
	if err := decode(what, n.Value, &j); err != nil {
		return PartitionState{}, err
	}
	if j.Version != stateVersion {
		return PartitionState{}, malformed(what, "version %d", j.Version)
	}
	if j.Leader < NoLeader.ID || j.LeaderEpoch < 0 {
		return PartitionState{}, malformed(what, "leader %d in epoch %d", j.Leader, j.LeaderEpoch)
	}
	s := PartitionState{
		ControllerEpoch: j.ControllerEpoch,
		Leader:          Member{j.Leader, j.BrokerEpoch},
		LeaderEpoch:     j.LeaderEpoch,
		Version:         n.Version,
		Rev:             n.Rev,
	}
	if j.Leader == NoLeader.ID {
		s.Leader = NoLeader
	}
	var ok bool
	if s.ISR, ok = decodeMembers(j.ISR, j.ISREpochs); !ok {
		return PartitionState{}, malformed(what, "isr %v with broker epochs %v", j.ISR, j.ISREpochs)
	}
	if s.Eligible, ok = decodeMembers(j.Eligible, j.EligibleEpochs); !ok {
		return PartitionState{}, malformed(what, "eligible %v with broker epochs %v", j.Eligible, j.EligibleEpochs)
	}
	return s, nil
}

func decodeMembers(ids []int32, epochs []int64) ([]Member, bool) {
	if len(ids) != len(epochs) || len(ids) > maxMembers || !distinct(ids) {
		return nil, false
	}
	if len(ids) == 0 {
		return nil, true
	}
	ms := make([]Member, len(ids))
	for i, id := range ids {
		ms[i] = Member{id, epochs[i]}
	}
	return ms, true
}

// StateChange is a partition's next state and what it rests on.
type StateChange struct {
	Topic     string
	ID        TopicID
	Partition int32
	// State is the next state over the version that it names; Missing creates it.
	State PartitionState
	// Registrations are the brokers' as the writer knows them.
	Registrations map[int32]Registration
}

// checkState is the check that a partition's state is still of this version.
func checkState(topic string, partition, version int32) Op {
	return Op{Kind: Check, Path: StatePath(topic, partition), Version: version}
}

// ChangeState writes a partition's state. With it are checked: the state's
// version, that the topic exists, and that each member of the ISR is registered
// with the broker epoch named (R4); the writer adds its fence. It is an error to
// name a member in another registration than the writer knows. "Leader none"
// leaves the ISR as it is, registered or not.
func ChangeState(c StateChange) (Write, error) {
	w := Write{
		Checks: make([]Op, 0, 1+2*len(c.State.ISR)),
		Note:   Note{Partitions: []TopicPartition{{c.Topic, c.Partition}}},
	}
	w.Checks = append(w.Checks, CheckTopic(c.ID))
	for _, m := range c.State.ISR {
		if c.State.Leader == NoLeader {
			break
		}
		r, ok := c.Registrations[m.ID]
		if !ok || r.Epoch != m.Epoch {
			return Write{}, fmt.Errorf("meta: state of %s-%d: broker %d is not registered in epoch %d", c.Topic, c.Partition, m.ID, m.Epoch)
		}
		w.Checks = append(w.Checks, r.Fence()...)
	}
	value := AppendState(make([]byte, 0, 160), c.State)
	path := StatePath(c.Topic, c.Partition)
	if c.State.Version == Missing {
		w.Ops = []Op{
			{Kind: Create, Path: partitionPath(c.Topic, c.Partition)},
			{Kind: Create, Path: path, Value: value},
		}
	} else {
		w.Ops = []Op{{Kind: Set, Path: path, Value: value, Version: c.State.Version}}
	}
	return w, nil
}
