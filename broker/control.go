package broker

import (
	"context"

	"firn/replication/controller"
	"firn/replication/meta"
)

// runController has this broker stand for controller, and act as such while it is.
func (b *Broker) runController(ctx context.Context) error {
	err := controller.New(controller.Config{
		Store: b.cfg.Meta,
		Self:  *b.registration.Load(),
		Rules: b.electionRules,
		Log:   b.log,
	}).Run(ctx)
	if ctx.Err() != nil {
		return nil
	}
	return err
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
