package workload

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// certain is how soon a commit must be answered to be taken for the only one: a
// slower one may have been sent twice, and its first copy be still on its way.
const certain = time.Second

// commit commits rising offsets for a group without members and looks for them.
func (l *Load) commit(ctx context.Context) {
	cl := l.client("group")
	defer cl.Close()
	a := kadm.NewClient(cl)
	topic, p := l.c.History.Topic, int32(0)
	h := l.c.History.Of(p)
	group, offset := l.name("g"), int64(0)
	for sleep(ctx, 200*time.Millisecond) {
		offset++
		from := l.now()
		actx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 8*time.Second)
		resp, err := a.CommitOffsets(actx, group, kadm.Offsets{topic: {p: {Topic: topic, Partition: p, At: offset, LeaderEpoch: -1}}})
		cancel()
		to := l.now()
		if err != nil || resp.Error() != nil || to-from > certain {
			l.GroupFail.Add(1)
			group, offset = l.name("g"), 0
			continue
		}
		h.Offset("commit", from, to, group, offset)
		l.Commits.Add(1)
		from = l.now()
		actx, cancel = context.WithTimeout(ctx, 5*time.Second)
		found, err := a.FetchOffsets(actx, group)
		cancel()
		if o, ok := found.Lookup(topic, p); err == nil && ok && o.Err == nil {
			h.Offset("committed", from, l.now(), group, o.At)
		} else if err == nil && !ok {
			h.Offset("committed", from, l.now(), group, -1)
		}
	}
}
