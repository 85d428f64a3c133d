package broker

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// groupNode is a broker whose groups begin at once.
func groupNode(t *testing.T, settings ...string) *node {
	t.Helper()
	return startNode(t, t.TempDir(), append([]string{"group.initial.rebalance.delay.ms=0", "offsets.topic.num.partitions=3"}, settings...)...)
}

func (n *node) findCoordinator(group string) kmsg.FindCoordinatorResponseCoordinator {
	n.t.Helper()
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.Version, req.CoordinatorKeys = 6, []string{group}
	return ask[*kmsg.FindCoordinatorResponse](n, req).Coordinators[0]
}

func joinReq(version int16, group, member string) *kmsg.JoinGroupRequest {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version, req.Group, req.MemberID = version, group, member
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 10_000, 10_000
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
	req.ProtocolType, req.Protocol = ref("consumer"), ref("range")
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
	p.Offset, p.LeaderEpoch, p.Metadata = offset, 3, ref("words")
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return ask[*kmsg.OffsetCommitResponse](n, req).Topics[0].Partitions[0].ErrorCode
}

// fetchOffset fetches partition 0's, by name.
func (n *node) fetchOffset(group, topic string) kmsg.OffsetFetchResponseGroupTopicPartition {
	n.t.Helper()
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version = 9
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = group
	t := kmsg.NewOffsetFetchRequestGroupTopic()
	t.Topic, t.Partitions = topic, []int32{0}
	g.Topics = append(g.Topics, t)
	req.Groups = append(req.Groups, g)
	got := ask[*kmsg.OffsetFetchResponse](n, req).Groups[0]
	if got.ErrorCode != 0 {
		n.t.Fatalf("OffsetFetch of %s: code %d", group, got.ErrorCode)
	}
	return got.Topics[0].Partitions[0]
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
	n := groupNode(t)
	n.create("events", 1)
	n.findCoordinator("readers")
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
	n := groupNode(t)
	n.create("events", 1)
	n.findCoordinator("readers")
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
