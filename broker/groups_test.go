package broker

import (
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/segment/batch"
)

// groupNode is a broker whose groups begin at once.
func groupNode(t *testing.T, settings ...string) *node {
	t.Helper()
	return startNode(t, t.TempDir(), append([]string{"group.initial.rebalance.delay.ms=0", "offsets.topic.num.partitions=3"}, settings...)...)
}

// readersNode is one with a topic events and a coordinator of the group readers.
func readersNode(t *testing.T, settings ...string) *node {
	t.Helper()
	n := groupNode(t, settings...)
	n.create("events", 1)
	n.findCoordinator("readers")
	return n
}

// findCoordinator asks for a group's coordinator as clients do: until there is one.
func (n *node) findCoordinator(group string) (found kmsg.FindCoordinatorResponseCoordinator) {
	n.t.Helper()
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.Version, req.CoordinatorKeys = 6, []string{group}
	eventually(n.t, "a coordinator of "+group, func() bool {
		found = ask[*kmsg.FindCoordinatorResponse](n, req).Coordinators[0]
		return !kerr.IsRetriable(kerr.ErrorForCode(found.ErrorCode))
	})
	return found
}

func joinReq(version int16, group, member string) *kmsg.JoinGroupRequest {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version, req.Group, req.MemberID = version, group, member
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = waitMillis, waitMillis
	req.ProtocolType = "consumer"
	p := kmsg.NewJoinGroupRequestProtocol()
	meta := kmsg.NewConsumerMemberMetadata()
	meta.Topics = []string{"events"}
	p.Name, p.Metadata = "range", meta.AppendTo(nil)
	req.Protocols = append(req.Protocols, p)
	return req
}

// enterGroup joins and syncs as the only member.
func (n *node) enterGroup(group string) (member string, generation int32) {
	n.t.Helper()
	j := ask[*kmsg.JoinGroupResponse](n, joinReq(9, group, ""))
	if j.ErrorCode != kerr.MemberIDRequired.Code || j.MemberID == "" {
		n.t.Fatalf("first join: code %d, member %q; want MEMBER_ID_REQUIRED and an id", j.ErrorCode, j.MemberID)
	}
	j = ask[*kmsg.JoinGroupResponse](n, joinReq(9, group, j.MemberID))
	if j.ErrorCode != 0 || j.LeaderID != j.MemberID || len(j.Members) != 1 {
		n.t.Fatalf("second join: %+v", j)
	}
	s := n.sync(group, j.MemberID, j.Generation, "all of it")
	if s.ErrorCode != 0 || string(s.MemberAssignment) != "all of it" {
		n.t.Fatalf("sync: code %d, assignment %q", s.ErrorCode, s.MemberAssignment)
	}
	return j.MemberID, j.Generation
}

func (n *node) sync(group, member string, generation int32, assignment string) *kmsg.SyncGroupResponse {
	n.t.Helper()
	req := kmsg.NewPtrSyncGroupRequest()
	req.Version, req.Group, req.MemberID, req.Generation = 5, group, member, generation
	req.ProtocolType, req.Protocol = new("consumer"), new("range")
	if assignment != "" {
		a := kmsg.NewSyncGroupRequestGroupAssignment()
		a.MemberID, a.MemberAssignment = member, []byte(assignment)
		req.GroupAssignment = append(req.GroupAssignment, a)
	}
	return ask[*kmsg.SyncGroupResponse](n, req)
}

func (n *node) heartbeat(group, member string, generation int32) int16 {
	n.t.Helper()
	req := kmsg.NewPtrHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.Generation = 4, group, member, generation
	return ask[*kmsg.HeartbeatResponse](n, req).ErrorCode
}

func (n *node) leaveGroup(group, member string) int16 {
	n.t.Helper()
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Version, req.Group = 5, group
	m := kmsg.NewLeaveGroupRequestMember()
	m.MemberID = member
	req.Members = append(req.Members, m)
	resp := ask[*kmsg.LeaveGroupResponse](n, req)
	if resp.ErrorCode != 0 {
		return resp.ErrorCode
	}
	return resp.Members[0].ErrorCode
}

// commitOffset commits for partition 0, by name.
func (n *node) commitOffset(version int16, group, member string, generation int32, topic string, offset int64) int16 {
	n.t.Helper()
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.MemberID, req.Generation = version, group, member, generation
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic = topic
	if version >= 10 {
		if x := n.topics.Load().byName[topic]; x != nil {
			t.TopicID = x.ID
		}
	}
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Offset, p.LeaderEpoch, p.Metadata = offset, 3, new("words")
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return ask[*kmsg.OffsetCommitResponse](n, req).Topics[0].Partitions[0].ErrorCode
}

// fetchOffset fetches partition 0's, by name.
// fetchOffset is what a group has committed of partition 0.
func (n *node) fetchOffset(group, topic string) kmsg.OffsetFetchResponseGroupTopicPartition {
	n.t.Helper()
	got := n.askOffset(group, topic)
	if got.ErrorCode != 0 {
		n.t.Fatalf("OffsetFetch of %s: code %d", group, got.ErrorCode)
	}
	return got.Topics[0].Partitions[0]
}

func (n *node) askOffset(group, topic string) kmsg.OffsetFetchResponseGroup {
	n.t.Helper()
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version = 9
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = group
	t := kmsg.NewOffsetFetchRequestGroupTopic()
	t.Topic, t.Partitions = topic, []int32{0}
	g.Topics = append(g.Topics, t)
	req.Groups = append(req.Groups, g)
	return ask[*kmsg.OffsetFetchResponse](n, req).Groups[0]
}

func (n *node) describeGroup(group string) kmsg.DescribeGroupsResponseGroup {
	n.t.Helper()
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Version, req.Groups = 6, []string{group}
	return ask[*kmsg.DescribeGroupsResponse](n, req).Groups[0]
}

func TestCoordinatorIsTheLeaderOfTheGroupsPartition(t *testing.T) {
	n := groupNode(t)
	got := n.findCoordinator("readers")
	if got.ErrorCode != 0 || got.NodeID != 1 || got.Port != n.Endpoints()[0].Port {
		t.Fatalf("coordinator: %+v", got)
	}
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.Version, req.CoordinatorType, req.CoordinatorKeys = 4, 1, []string{"tx"}
	if got := ask[*kmsg.FindCoordinatorResponse](n, req).Coordinators[0]; got.ErrorCode != kerr.TransactionalIDAuthorizationFailed.Code || got.NodeID != -1 {
		t.Fatalf("coordinator of a transaction: %+v", got)
	}
	req.CoordinatorType = 9
	if got := ask[*kmsg.FindCoordinatorResponse](n, req).Coordinators[0]; got.ErrorCode != kerr.InvalidRequest.Code {
		t.Fatalf("coordinator of nothing: code %d", got.ErrorCode)
	}
}

func TestCoordinatorPartitionIsJavas(t *testing.T) {
	// String.hashCode of each, from the definition: s[0]*31^(n-1) + … + s[n-1].
	for s, hash := range map[string]int64{"": 0, "a": 97, "group": 98629247, "polygenelubricants": -2147483648, "häß": 0x68*961 + 0xe4*31 + 0xdf, "😀": 0xd83d*31 + 0xde00} {
		want := int32(0)
		if hash != -1<<31 {
			want = int32(max(hash, -hash) % 50)
		}
		if got := coordinatorPartition(s, 50); got != want {
			t.Errorf("%q: partition %d, want %d", s, got, want)
		}
	}
}

func TestMemberJoinsCommitsAndLeaves(t *testing.T) {
	n := readersNode(t)
	member, generation := n.enterGroup("readers")
	if code := n.heartbeat("readers", member, generation); code != 0 {
		t.Fatalf("heartbeat: code %d", code)
	}
	if code := n.commitOffset(10, "readers", member, generation, "events", 42); code != 0 {
		t.Fatalf("commit: code %d", code)
	}
	if code := n.commitOffset(9, "readers", member, generation-1, "events", 41); code != kerr.IllegalGeneration.Code {
		t.Fatalf("commit of an old generation: code %d", code)
	}
	if code := n.commitOffset(9, "readers", "", -1, "events", 41); code != kerr.UnknownMemberID.Code {
		t.Fatalf("commit without a member beside members: code %d", code)
	}
	if got := n.fetchOffset("readers", "events"); got.Offset != 42 || got.LeaderEpoch != 3 || words(got.Metadata) != "words" {
		t.Fatalf("offset: %+v", got)
	}
	d := n.describeGroup("readers")
	if d.State != "Stable" || d.Protocol != "range" || len(d.Members) != 1 || string(d.Members[0].MemberAssignment) != "all of it" {
		t.Fatalf("described: %+v", d)
	}
	if code := n.leaveGroup("readers", member); code != 0 {
		t.Fatalf("leave: code %d", code)
	}
	if d := n.describeGroup("readers"); d.State != "Empty" {
		t.Fatalf("after the last member has left: %+v", d)
	}
	if code := n.commitOffset(9, "readers", "", -1, "events", 7); code != 0 {
		t.Fatalf("commit without a member in an empty group: code %d", code)
	}
}

func TestGroupsSurviveARestart(t *testing.T) {
	n := readersNode(t)
	member, generation := n.enterGroup("readers")
	n.commitOffset(10, "readers", member, generation, "events", 42)
	if code := n.commitOffset(2, "simple", "", -1, "events", 7); code != 0 {
		t.Fatalf("commit without a group: code %d", code)
	}
	n.restart()
	if got := n.fetchOffset("readers", "events"); got.Offset != 42 || got.LeaderEpoch != 3 || words(got.Metadata) != "words" {
		t.Fatalf("offset: %+v", got)
	}
	if got := n.fetchOffset("simple", "events"); got.Offset != 7 || got.LeaderEpoch != -1 {
		t.Fatalf("offset: %+v", got)
	}
	if code := n.heartbeat("readers", member, generation); code != 0 {
		t.Fatalf("heartbeat of a member from before: code %d", code)
	}
	if s := n.sync("readers", member, generation, ""); s.ErrorCode != 0 || string(s.MemberAssignment) != "all of it" {
		t.Fatalf("assignment: code %d, %q", s.ErrorCode, s.MemberAssignment)
	}
	req := kmsg.NewPtrListGroupsRequest()
	req.Version = 5
	var names []string
	for _, g := range ask[*kmsg.ListGroupsResponse](n, req).Groups {
		names = append(names, g.Group+" "+g.GroupState+" "+g.ProtocolType+" "+g.GroupType)
	}
	if want := []string{"readers Stable consumer classic", "simple Empty  classic"}; !slices.Equal(names, want) {
		t.Fatalf("groups %q, want %q", names, want)
	}
}

func (n *node) deleteGroup(group string) int16 {
	n.t.Helper()
	req := kmsg.NewPtrDeleteGroupsRequest()
	req.Version, req.Groups = 2, []string{group}
	return ask[*kmsg.DeleteGroupsResponse](n, req).Groups[0].ErrorCode
}

func TestDeletedGroupStaysDeleted(t *testing.T) {
	n := readersNode(t)
	member, generation := n.enterGroup("readers")
	n.commitOffset(10, "readers", member, generation, "events", 42)
	if code := n.deleteGroup("readers"); code != kerr.NonEmptyGroup.Code {
		t.Fatalf("delete of a group with members: code %d", code)
	}
	n.leaveGroup("readers", member)
	if code := n.deleteGroup("readers"); code != 0 {
		t.Fatalf("delete: code %d", code)
	}
	if code := n.deleteGroup("readers"); code != kerr.GroupIDNotFound.Code {
		t.Fatalf("delete again: code %d", code)
	}
	for _, when := range []string{"at once", "after a restart"} {
		if got := n.fetchOffset("readers", "events"); got.Offset != -1 || got.ErrorCode != 0 {
			t.Errorf("%s: offset %+v, want -1 without an error", when, got)
		}
		if d := n.describeGroup("readers"); d.ErrorCode != kerr.GroupIDNotFound.Code || d.State != "Dead" {
			t.Errorf("%s: %+v", when, d)
		}
		n.restart()
	}
}

// F7: a topic that takes a deleted one's name doesn't inherit its offsets.
func TestOffsetsGoWithTheirTopic(t *testing.T) {
	n := groupNode(t)
	n.create("events", 1)
	n.create("others", 1)
	n.findCoordinator("readers")
	n.commitOffset(10, "readers", "", -1, "events", 42)
	n.commitOffset(10, "readers", "", -1, "others", 7)
	n.delete("events")
	eventually(t, "the offset goes with its topic", func() bool { return n.fetchOffset("readers", "events").Offset == -1 })
	n.create("events", 1)
	for _, when := range []string{"at once", "after a restart"} {
		if got := n.fetchOffset("readers", "events"); got.Offset != -1 {
			t.Errorf("%s: offset %d of a topic that is gone", when, got.Offset)
		}
		if got := n.fetchOffset("readers", "others"); got.Offset != 7 {
			t.Errorf("%s: offset %d of a topic that stayed, want 7", when, got.Offset)
		}
		n.restart()
	}
}

func TestCommitsAreRefusedOneByOne(t *testing.T) {
	n := readersNode(t, "offset.metadata.max.bytes=4")
	if code := n.commitOffset(9, "readers", "", -1, "nowhere", 1); code != kerr.UnknownTopicOrPartition.Code {
		t.Errorf("unknown topic: code %d", code)
	}
	if code := n.commitOffset(10, "readers", "", -1, "nowhere", 1); code != kerr.UnknownTopicID.Code {
		t.Errorf("unknown topic id: code %d", code)
	}
	if code := n.commitOffset(10, "readers", "", -1, "events", 1); code != kerr.OffsetMetadataTooLarge.Code {
		t.Errorf("five bytes of metadata where four are allowed: code %d", code)
	}
	if code := n.commitOffset(8, "nobody", "m", 4, "events", 1); code != kerr.IllegalGeneration.Code && code != kerr.OffsetMetadataTooLarge.Code {
		t.Errorf("generation of an unknown group: code %d", code)
	}
	req := kmsg.NewPtrListGroupsRequest()
	if got := ask[*kmsg.ListGroupsResponse](n, req); len(got.Groups) != 0 {
		t.Errorf("what was refused left groups: %+v", got.Groups)
	}
}

func TestUnknownGroups(t *testing.T) {
	n := readersNode(t)
	if code := n.commitOffset(9, "readers", "m", 4, "events", 1); code != kerr.GroupIDNotFound.Code {
		t.Errorf("commit of a generation: code %d", code)
	}
	if code := n.commitOffset(8, "readers", "m", 4, "events", 1); code != kerr.IllegalGeneration.Code {
		t.Errorf("commit of a generation, before v9: code %d", code)
	}
	if code := n.heartbeat("readers", "m", 4); code != kerr.UnknownMemberID.Code {
		t.Errorf("heartbeat: code %d", code)
	}
	if code := n.leaveGroup("readers", "m"); code != kerr.UnknownMemberID.Code {
		t.Errorf("leave: code %d", code)
	}
	if s := n.sync("readers", "m", 4, ""); s.ErrorCode != kerr.UnknownMemberID.Code {
		t.Errorf("sync: code %d", s.ErrorCode)
	}
	if j := ask[*kmsg.JoinGroupResponse](n, joinReq(9, "readers", "m")); j.ErrorCode != kerr.UnknownMemberID.Code {
		t.Errorf("join with an id: code %d", j.ErrorCode)
	}
	if j := ask[*kmsg.JoinGroupResponse](n, joinReq(9, "", "")); j.ErrorCode != kerr.InvalidGroupID.Code {
		t.Errorf("join of a group without a name: code %d", j.ErrorCode)
	}
	short := joinReq(9, "readers", "")
	short.SessionTimeoutMillis = 5
	if j := ask[*kmsg.JoinGroupResponse](n, short); j.ErrorCode != kerr.InvalidSessionTimeout.Code {
		t.Errorf("join for 5 ms: code %d", j.ErrorCode)
	}
	short.MemberID = "m" // of which nobody has heard
	if j := ask[*kmsg.JoinGroupResponse](n, short); j.ErrorCode != kerr.InvalidSessionTimeout.Code {
		t.Errorf("join for 5 ms with an id: code %d", j.ErrorCode)
	}
	if d := n.describeGroup("readers"); d.ErrorCode != kerr.GroupIDNotFound.Code || words(d.ErrorMessage) == "" {
		t.Errorf("describe: %+v", d)
	}
	old := kmsg.NewPtrDescribeGroupsRequest()
	old.Version, old.Groups = 5, []string{"readers"}
	if d := ask[*kmsg.DescribeGroupsResponse](n, old).Groups[0]; d.ErrorCode != 0 || d.State != "Dead" {
		t.Errorf("describe, before v6: %+v", d)
	}
}

// What kafka-go, librdkafka and the rest of the old ones send.
func TestOldVersionsOfOffsetFetch(t *testing.T) {
	n := groupNode(t)
	n.create("events", 2)
	n.findCoordinator("readers")
	n.commitOffset(2, "readers", "", -1, "events", 42)
	for v := int16(1); v <= 7; v++ {
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Version, req.Group = v, "readers"
		topic := kmsg.NewOffsetFetchRequestTopic()
		topic.Topic, topic.Partitions = "events", []int32{0, 1}
		req.Topics = append(req.Topics, topic)
		got := ask[*kmsg.OffsetFetchResponse](n, req)
		if p := got.Topics[0].Partitions; got.ErrorCode != 0 || p[0].Offset != 42 || p[1].Offset != -1 || p[1].ErrorCode != 0 {
			t.Errorf("v%d: %+v", v, got)
		}
	}
	all := kmsg.NewPtrOffsetFetchRequest()
	all.Version, all.Group, all.Topics = 5, "readers", nil
	if got := ask[*kmsg.OffsetFetchResponse](n, all); len(got.Topics) != 1 || len(got.Topics[0].Partitions) != 1 {
		t.Errorf("null asks for all: %+v", got)
	}
	byID := kmsg.NewPtrOffsetFetchRequest()
	byID.Version = 10
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group, g.Topics = "readers", nil
	byID.Groups = append(byID.Groups, g)
	if got := ask[*kmsg.OffsetFetchResponse](n, byID).Groups[0]; len(got.Topics) != 1 || got.Topics[0].TopicID != n.topics.Load().byName["events"].ID {
		t.Errorf("null asks for all, by id: %+v", got)
	}
	one := kmsg.NewOffsetFetchRequestGroupTopic()
	one.TopicID, one.Partitions = [16]byte{9}, []int32{0}
	byID.Groups[0].Topics = []kmsg.OffsetFetchRequestGroupTopic{one}
	if got := ask[*kmsg.OffsetFetchResponse](n, byID).Groups[0].Topics[0].Partitions[0]; got.ErrorCode != kerr.UnknownTopicID.Code {
		t.Errorf("an id of no topic: %+v", got)
	}
}

func TestListGroupsFilters(t *testing.T) {
	n := readersNode(t)
	n.enterGroup("readers")
	n.commitOffset(2, "simple", "", -1, "events", 7)
	list := func(states, types []string) (names []string) {
		req := kmsg.NewPtrListGroupsRequest()
		req.Version, req.StatesFilter, req.TypesFilter = 5, states, types
		for _, g := range ask[*kmsg.ListGroupsResponse](n, req).Groups {
			names = append(names, g.Group)
		}
		return names
	}
	for _, c := range []struct{ states, types, want []string }{
		{nil, nil, []string{"readers", "simple"}},
		{[]string{"stable"}, nil, []string{"readers"}},
		{[]string{"Empty", "Dead"}, []string{"Classic"}, []string{"simple"}},
		{nil, []string{"consumer"}, nil},
	} {
		if got := list(c.states, c.types); !slices.Equal(got, c.want) {
			t.Errorf("states %v, types %v: %v, want %v", c.states, c.types, got, c.want)
		}
	}
}

func TestOffsetsExpire(t *testing.T) {
	n := groupNode(t, "offsets.retention.check.interval.ms=20")
	n.create("events", 1)
	n.findCoordinator("simple")
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.RetentionTimeMillis = 2, "simple", 1
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic = "events"
	topic.Partitions = append(topic.Partitions, kmsg.NewOffsetCommitRequestTopicPartition())
	req.Topics = append(req.Topics, topic)
	ask[*kmsg.OffsetCommitResponse](n, req)
	n.commitOffset(10, "lasting", "", -1, "events", 3)
	eventually(t, "the group that kept its offset for 1 ms is gone", func() bool {
		return n.describeGroup("simple").ErrorCode == kerr.GroupIDNotFound.Code
	})
	n.restart()
	if got := n.fetchOffset("simple", "events"); got.Offset != -1 {
		t.Errorf("expired offset is back: %+v", got)
	}
	if got := n.fetchOffset("lasting", "events"); got.Offset != 3 {
		t.Errorf("offset of the other group: %+v", got)
	}
}

func TestGroupMetrics(t *testing.T) {
	n := readersNode(t)
	member, generation := n.enterGroup("readers")
	n.commitOffset(10, "readers", member, generation, "events", 0)
	now := time.Now().UnixMilli()
	n.dial().call(produceReq(9, -1, "events", 0, n.batch(batch.Spec{}, now, now, now)))
	for name, want := range map[string]float64{"members": 1, "current_offset": 0, "lag": 3, "lag_sum": 3, "current_offset_sum": 0} {
		if got := n.metric("kafka_consumergroup_"+name, "consumergroup=readers"); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}

// A rebalance over connections, as clients do it: JoinGroup blocks on each.
func TestTwoMembersOverConnections(t *testing.T) {
	n := groupNode(t)
	n.findCoordinator("readers")
	a, b := n.dial(), n.dial()
	first := a.call(joinReq(3, "readers", "")).(*kmsg.JoinGroupResponse)
	if first.ErrorCode != 0 {
		t.Fatalf("first join: code %d", first.ErrorCode)
	}
	second := joinReq(3, "readers", "")
	corr := b.send(second)
	eventually(t, "the second member makes a rebalance", func() bool { return n.describeGroup("readers").State == "PreparingRebalance" })
	again := a.call(joinReq(3, "readers", first.MemberID)).(*kmsg.JoinGroupResponse)
	other := b.recv(corr, second).(*kmsg.JoinGroupResponse)
	if again.Generation != 2 || other.Generation != 2 || len(again.Members) != 2 || other.LeaderID != again.MemberID {
		t.Fatalf("generations %d and %d, %d members, leader %s", again.Generation, other.Generation, len(again.Members), other.LeaderID)
	}
}

// Groups of a broker that stops are told so, not left hanging.
func TestJoinEndsWithTheBroker(t *testing.T) {
	n := startNode(t, t.TempDir(), "group.initial.rebalance.delay.ms=600000", "group.max.session.timeout.ms=3600000")
	n.findCoordinator("readers")
	c := n.dial()
	req := joinReq(3, "readers", "")
	corr := c.send(req)
	eventually(t, "the join waits", func() bool { return n.describeGroup("readers").State == "PreparingRebalance" })
	n.stop()
	if got := c.recv(corr, req).(*kmsg.JoinGroupResponse); got.ErrorCode != kerr.CoordinatorNotAvailable.Code && got.ErrorCode != kerr.NotCoordinator.Code {
		t.Errorf("join: code %d", got.ErrorCode)
	}
}
