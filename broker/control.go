package broker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"firn/replication/controller"
	"firn/replication/meta"
)

// runController has this broker stand for controller, and act as such while it
// is, until ctx ends: a registration's campaigns end with it.
func (b *Broker) runController(ctx context.Context, self meta.Registration) {
	err := controller.New(controller.Config{
		Store:        b.cfg.Meta,
		Self:         self,
		Rules:        b.electionRules,
		Known:        b.image.offer,
		Log:          b.log,
		Elected:      b.elected,
		Ask:          b.askEnds,
		BalanceEvery: b.balanceEvery(),
		Balance:      controller.Balance{Percent: int(b.cfg.Settings.Int("leader.imbalance.per.broker.percentage"))},
	}).Run(ctx)
	if ctx.Err() == nil && !errors.Is(err, meta.ErrClosed) {
		b.log.Error("the controller's loop has ended", "err", err)
	}
}

// elected counts what the controller has decided here.
func (b *Broker) elected(c controller.Change) {
	if c.Why.Unclean() {
		b.unclean.Add(1)
	}
	b.decisions.add(c.Why)
}

// balanceEvery is how often the controller looks whether leaderships are to be
// given back to the preferred leaders; 0 for never.
func (b *Broker) balanceEvery() time.Duration {
	if !b.cfg.Settings.Bool("auto.leader.rebalance.enable") {
		return 0
	}
	return time.Duration(b.cfg.Settings.Int("leader.imbalance.check.interval.seconds")) * time.Second
}

// electionRules are what a topic's settings, resolved with the broker's own, ask
// of elections.
func (b *Broker) electionRules(from *meta.TopicImage) controller.Rules {
	x := b.topics.Load()
	t := x.byName[from.Name]
	if t == nil || t.from != from {
		s := x.settings.Topic(from.Config.Values, isInternal(from.Name))
		return controller.Rules{MinInsync: s.MinInsyncReplicas, Unclean: s.UncleanLeaderElection}
	}
	return controller.Rules{MinInsync: t.settings.MinInsyncReplicas, Unclean: t.settings.UncleanLeaderElection}
}

// decisions counts what the controller has decided on this broker, by reason.
type decisions struct {
	mu    sync.Mutex
	count map[controller.Why]int64
}

func (d *decisions) add(why controller.Why) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.count == nil {
		d.count = map[controller.Why]int64{}
	}
	d.count[why]++
}

// Describe and Collect make it a prometheus.Collector.
func (d *decisions) Describe(c chan<- *prometheus.Desc) { c <- decisionsDesc() }

// Collect draws the counts.
func (d *decisions) Collect(c chan<- prometheus.Metric) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for why, n := range d.count {
		c <- prometheus.MustNewConstMetric(decisionsDesc(), prometheus.CounterValue, float64(n), string(why))
	}
}

func decisionsDesc() *prometheus.Desc {
	return prometheus.NewDesc("firn_controller_decisions_total", "Partition states that this broker, as controller, has written, by reason.", []string{"why"}, nil)
}
