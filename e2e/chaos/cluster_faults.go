package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/e2e/chaos/link"
	"firn/e2e/chaos/stand"
)

// clusterFaults are those that take several brokers: their links, ZooKeeper,
// their disks.
func clusterFaults() []fault {
	const s = time.Second
	all := []fault{
		{name: "cut-peers-leader", promised: true, brokers: 3, shortest: s, longest: 8 * s, do: isolate("leader", true)},
		{name: "cut-kill-leader", promised: true, brokers: 3, shortest: s, longest: 6 * s, do: cutKill},
		{name: "cut-peers-follower", promised: true, brokers: 3, shortest: s, longest: 8 * s, do: isolate("follower", true)},
		{name: "cut-peers-in", promised: true, brokers: 3, shortest: s, longest: 8 * s, do: isolate("any", false)},
		{name: "cut-one-edge", promised: true, brokers: 3, shortest: s, longest: 8 * s, do: edge(link.Fault{Cut: true})},
		{name: "stall-requests", promised: true, brokers: 3, shortest: s, longest: 8 * s, do: edge(link.Fault{Requests: true})},
		{name: "stall-answers", promised: true, brokers: 3, shortest: s, longest: 8 * s, do: edge(link.Fault{Answers: true})},
		{name: "cut-all-peers", brokers: 3, shortest: s / 2, longest: 6 * s, do: splitAll},
		{name: "cut-clients", promised: true, brokers: 3, shortest: s, longest: 6 * s, do: clients(link.Fault{Cut: true})},
		{name: "stall-clients", promised: true, brokers: 3, shortest: s, longest: 4 * s, do: clients(link.Fault{Answers: true})},
		{name: "repeat-fetches", promised: true, brokers: 3, shortest: s, longest: 4 * s, do: peers(kmsg.Fetch, link.Fault{Repeat: true})},
		{name: "hold-epoch-ends", promised: true, brokers: 3, shortest: s, longest: 4 * s, do: peers(kmsg.OffsetForLeaderEpoch, link.Fault{Requests: true})},
		{name: "slow-fetches", promised: true, brokers: 3, shortest: s, longest: 4 * s, do: peers(kmsg.Fetch, link.Fault{Delay: 50 * time.Millisecond})},
		{name: "repeat-produces", promised: true, brokers: 3, shortest: s, longest: 4 * s, do: repeatProduces},

		{name: "zk-cut-leader", promised: true, brokers: 3, needs: "zk", shortest: s, longest: 8 * s, do: cutZooKeeper("leader")},
		{name: "zk-cut-controller", promised: true, brokers: 3, needs: "zk", shortest: s, longest: 8 * s, do: cutZooKeeper("controller")},
		{name: "zk-expire", promised: true, brokers: 3, needs: "zk", shortest: s, longest: 3 * s, do: expire},
		{name: "zk-expire-all", brokers: 3, needs: "zk", shortest: s, longest: 3 * s, do: expireAll},
		{name: "zk-kill-one", promised: true, brokers: 3, needs: "zk3", shortest: s, longest: 8 * s, do: zooKeepers(1, false)},
		{name: "zk-pause-one", promised: true, brokers: 3, needs: "zk3", shortest: s, longest: 8 * s, do: zooKeepers(1, true)},
		// All brokers are up: acks=all goes on without ZooKeeper.
		{name: "zk-kill-quorum", promised: true, brokers: 3, needs: "zk", shortest: s, longest: 8 * s, do: zooKeepers(0, false)},
		{name: "zk-pause-quorum", promised: true, brokers: 3, needs: "zk", shortest: s, longest: 8 * s, do: zooKeepers(0, true)},

		{name: "wipe-follower", promised: true, brokers: 3, shortest: s / 2, longest: 4 * s, do: wipe},
		{name: "disk-full-follower", promised: true, brokers: 3, shortest: s, longest: 6 * s, do: diskFull("follower")},
		{name: "disk-full-leader", promised: true, brokers: 3, shortest: 10 * s, longest: 14 * s, do: diskFull("leader")}, // others lead after 5 s
		{name: "rolling-restart", promised: true, brokers: 3, shortest: s / 2, longest: s, do: rolling},
	}
	return all
}

// peer is how a broker names itself to others.
func peer(b *stand.Broker) string { return fmt.Sprintf("firn-replica-%d", b.ID) }

// together heals everything that was put on links.
func together(heals []func()) func(context.Context) error {
	return func(context.Context) error {
		for _, heal := range heals {
			heal()
		}
		return nil
	}
}

// isolate cuts a broker off from its peers: what others send to it, and, both,
// what it sends to others.
func isolate(role string, both bool) func(*victims) (func(context.Context) error, error) {
	return func(v *victims) (func(context.Context) error, error) {
		b := v.broker(role)
		heals := []func(){b.Peers.Add(link.Fault{Cut: true})}
		for _, o := range v.Brokers {
			if both && o != b {
				heals = append(heals, o.Peers.Add(link.Fault{From: peer(b), Cut: true}))
			}
		}
		return together(heals), nil
	}
}

// cutKill cuts a leader off from its followers and kills it a little later: what
// it has acknowledged on its own is lost.
func cutKill(v *victims) (func(context.Context) error, error) {
	b := v.broker("leader")
	heal := b.Peers.Add(link.Fault{Cut: true})
	time.Sleep(500 * time.Millisecond)
	b.Kill()
	heal()
	return again(b), nil
}

// edge puts a fault on what one follower sends to one other.
func edge(f link.Fault) func(*victims) (func(context.Context) error, error) {
	return func(v *victims) (func(context.Context) error, error) {
		from := v.broker("any")
		to := from
		for to == from {
			to = v.choose("any")
		}
		v.hit = append(v.hit, "→", to.Name)
		f.From = peer(from)
		return together([]func(){to.Peers.Add(f)}), nil
	}
}

func splitAll(v *victims) (func(context.Context) error, error) {
	var heals []func()
	for _, b := range v.Brokers {
		heals = append(heals, b.Peers.Add(link.Fault{Cut: true}))
	}
	return together(heals), nil
}

// clients cuts a leader off from its clients, but not from its peers.
func clients(f link.Fault) func(*victims) (func(context.Context) error, error) {
	return func(v *victims) (func(context.Context) error, error) {
		return together([]func(){v.broker("leader").Clients.Add(f)}), nil
	}
}

// peers puts a fault on one API between all brokers.
func peers(api kmsg.Key, f link.Fault) func(*victims) (func(context.Context) error, error) {
	return func(v *victims) (func(context.Context) error, error) {
		key := api.Int16()
		f.API = &key
		var heals []func()
		for _, b := range v.Brokers {
			heals = append(heals, b.Peers.Add(f))
		}
		return together(heals), nil
	}
}

// repeatProduces sends what idempotent producers send twice, as a network that
// loses an answer makes them do.
func repeatProduces(v *victims) (func(context.Context) error, error) {
	key := kmsg.Produce.Int16()
	var heals []func()
	for _, b := range v.Brokers {
		heals = append(heals, b.Clients.Add(link.Fault{API: &key, FromPrefix: "i", Repeat: true}))
	}
	return together(heals), nil
}

func cutZooKeeper(role string) func(*victims) (func(context.Context) error, error) {
	return func(v *victims) (func(context.Context) error, error) {
		var heals []func()
		for _, l := range v.broker(role).ZK {
			heals = append(heals, l.Add(link.Fault{Cut: true}))
		}
		return together(heals), nil
	}
}

func expire(v *victims) (func(context.Context) error, error) {
	return nothing, expireOf(v.broker("any"))
}

func expireAll(v *victims) (func(context.Context) error, error) {
	var err error
	for _, b := range v.Brokers {
		err = errors.Join(err, expireOf(b))
	}
	return nothing, err
}

func nothing(context.Context) error { return nil }

// expireOf ends a broker's session, whichever server it has it with.
func expireOf(b *stand.Broker) error {
	var all error
	for _, l := range b.ZK {
		err := l.Expire()
		if err == nil {
			return nil
		}
		all = errors.Join(all, err)
	}
	return all
}

// zooKeepers kills or pauses so many servers, all for 0.
func zooKeepers(n int, paused bool) func(*victims) (func(context.Context) error, error) {
	return func(v *victims) (func(context.Context) error, error) {
		if n == 0 {
			n = len(v.ZK)
		}
		var hit []*stand.ZooKeeper
		for _, i := range v.rng.Perm(len(v.ZK))[:n] {
			z := v.ZK[i]
			hit = append(hit, z)
			v.hit = append(v.hit, z.Name)
			if !paused {
				z.Kill()
			} else if err := z.Pause(); err != nil {
				return nil, err
			}
		}
		return func(ctx context.Context) error {
			for _, z := range hit {
				var err error
				if paused {
					err = z.Resume()
				} else {
					err = z.Start()
				}
				if err != nil {
					return err
				}
			}
			return v.ServingZooKeeper(ctx)
		}, nil
	}
}

// wipe takes a follower's data away while it is down.
func wipe(v *victims) (func(context.Context) error, error) {
	b := v.broker("follower")
	b.Kill()
	if err := b.Wipe(); err != nil {
		return nil, err
	}
	return again(b), nil
}

// diskFull raises a broker's reserve beyond what its disk has free: it refuses
// records as it would on a disk that others have filled.
func diskFull(role string) func(*victims) (func(context.Context) error, error) {
	return func(v *victims) (func(context.Context) error, error) {
		b := v.broker(role)
		if err := setReserve(v, b, "9000000000000000"); err != nil {
			return nil, err
		}
		return func(context.Context) error { return setReserve(v, b, "") }, nil
	}
}

// setReserve sets or, by "", unsets log.dir.min.free.bytes of one broker.
func setReserve(v *victims, b *stand.Broker, value string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(v.Seeds()...))
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), healTime)
	defer cancel()
	c := kadm.AlterConfig{Op: kadm.SetConfig, Name: "log.dir.min.free.bytes", Value: &value}
	if value == "" {
		c.Op, c.Value = kadm.DeleteConfig, nil
	}
	resp, err := kadm.NewClient(cl).AlterBrokerConfigs(ctx, []kadm.AlterConfig{c}, b.ID)
	if err != nil {
		return err
	}
	for _, r := range resp {
		err = errors.Join(err, r.Err)
	}
	return err
}

// rolling restarts all brokers in order, each when the one before is in sync.
func rolling(v *victims) (func(context.Context) error, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*healTime)
	defer cancel()
	for _, b := range v.Brokers {
		if err := b.Stop(stopTime); err != nil {
			return nil, err
		}
		if err := again(b)(ctx); err != nil {
			return nil, err
		}
		if err := inSync(ctx, v.Seeds()); err != nil {
			return nil, err
		}
	}
	return nothing, nil
}
