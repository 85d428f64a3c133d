package controller

import (
	"strconv"

	"firn/replication/meta"
)

// topicRules reads the rules from a topic's own configs. They were validated
// when they were written: what can't be read is taken for the default.
func topicRules(t *meta.TopicImage) Rules {
	r := Rules{MinInsync: 1}
	if n, err := strconv.Atoi(t.Config.Values["min.insync.replicas"]); err == nil {
		r.MinInsync = n
	}
	r.Unclean, _ = strconv.ParseBool(t.Config.Values["unclean.leader.election.enable"])
	return r
}
