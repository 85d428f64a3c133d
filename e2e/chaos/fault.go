package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"firn/e2e/chaos/stand"
	"firn/e2e/chaos/workload"
	"firn/e2e/storefault"
)

// fault is something that can be done to a stand.
type fault struct {
	name string
	// promised: writes are acknowledged while it lasts, after a failover at most.
	promised bool
	// brokers is how many the stand must have.
	brokers int
	// needs says what else: "store", "zk", "zk3".
	needs string
	// shortest and longest it lasts.
	shortest, longest time.Duration
	// do breaks something and returns how to heal it.
	do func(*victims) (heal func(context.Context) error, err error)
}

// victims chooses what is hit, of the stand as it is now.
type victims struct {
	*stand.Stand
	load *workload.Load
	rng  *rand.Rand
	// what was hit, in words.
	hit []string
}

// broker chooses a broker by its role: leader, follower, controller or any.
func (v *victims) broker(role string) *stand.Broker {
	b := v.choose(role)
	v.hit = append(v.hit, b.Name)
	return b
}

func (v *victims) choose(role string) *stand.Broker {
	leader := v.load.Leader(0)
	var fit []*stand.Broker
	for _, b := range v.Brokers {
		leads := b.ID == leader
		switch role {
		case "leader":
			if !leads {
				continue
			}
		case "follower":
			if leads {
				continue
			}
		case "controller":
			if m := b.Metrics(context.Background()); m["kafka_controller_kafkacontroller_activecontrollercount"] != 1 {
				continue
			}
		}
		fit = append(fit, b)
	}
	if len(fit) == 0 {
		fit = v.Brokers
	}
	return fit[v.rng.IntN(len(fit))]
}

// faults are all that we know.
func faults() []fault {
	var all []fault
	for _, role := range []string{"leader", "follower", "controller"} {
		all = append(all,
			fault{name: "kill-" + role, promised: true, brokers: 3, shortest: 800 * time.Millisecond, longest: 8 * time.Second, do: kill(role)},
			fault{name: "pause-" + role, promised: true, brokers: 3, shortest: 300 * time.Millisecond, longest: 8 * time.Second, do: pause(role)},
			fault{name: "stop-" + role, promised: true, brokers: 3, shortest: 500 * time.Millisecond, longest: 4 * time.Second, do: stop(role)},
		)
	}
	all = append(all,
		fault{name: "kill", brokers: 1, shortest: 100 * time.Millisecond, longest: 2 * time.Second, do: kill("any")},
		fault{name: "pause", brokers: 1, shortest: 100 * time.Millisecond, longest: 4 * time.Second, do: pause("any")},
		fault{name: "stop", brokers: 1, shortest: 100 * time.Millisecond, longest: time.Second, do: stop("any")},
		fault{name: "kill-all", brokers: 3, shortest: 100 * time.Millisecond, longest: 2 * time.Second, do: killAll},
		fault{name: "store-kill", promised: true, brokers: 1, needs: "store", shortest: time.Second, longest: 8 * time.Second, do: storeKill},
		fault{name: "store-pause", promised: true, brokers: 1, needs: "store", shortest: time.Second, longest: 8 * time.Second, do: storePause},
	)
	for _, f := range []storefault.Fault{storefault.Down, storefault.BlackHole, storefault.Slow, storefault.Unavailable,
		storefault.ShortReply, storefault.Corrupted, storefault.MissingOnce} {
		all = append(all, fault{name: "store-" + strings.ReplaceAll(string(f), " ", "-"), promised: true, brokers: 1, needs: "store",
			shortest: time.Second, longest: 8 * time.Second, do: storeFault(f)})
	}
	return append(all, clusterFaults()...)
}

// fits tells whether the stand has what the fault needs.
func (f *fault) fits(c stand.Config) bool {
	switch f.needs {
	case "store":
		if !c.MinIO {
			return false
		}
	case "zk":
		if c.ZooKeepers == 0 {
			return false
		}
	case "zk3":
		if c.ZooKeepers < 3 {
			return false
		}
	}
	if f.brokers == 1 && f.needs == "" {
		return c.Brokers == 1 // a cluster has these by role
	}
	return c.Brokers >= f.brokers
}

// chosen are the faults that fit and whose names begin with one of the prefixes.
func chosen(c stand.Config, prefixes []string) ([]fault, error) {
	var out []fault
	for _, f := range faults() {
		named := len(prefixes) == 0 || slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(f.name, p) })
		if named && f.fits(c) {
			out = append(out, f)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no fault fits %v", prefixes)
	}
	return out, nil
}

// again starts a broker that was ended, and waits until it serves.
func again(bs ...*stand.Broker) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, b := range bs {
			if b.Running() {
				continue
			}
			if err := b.Start(); err != nil {
				return err
			}
		}
		for _, b := range bs {
			if err := b.Ready(ctx); err != nil {
				return err
			}
		}
		return nil
	}
}

func kill(role string) func(*victims) (func(context.Context) error, error) {
	return func(v *victims) (func(context.Context) error, error) {
		b := v.broker(role)
		b.Kill()
		return again(b), nil
	}
}

func killAll(v *victims) (func(context.Context) error, error) {
	for _, b := range v.Brokers {
		b.Kill()
	}
	return again(v.Brokers...), nil
}

// stopTime is how long a broker may take to stop: it syncs all its logs, on a disk
// that others may keep busy.
const stopTime = 2 * time.Minute

func stop(role string) func(*victims) (func(context.Context) error, error) {
	return func(v *victims) (func(context.Context) error, error) {
		b := v.broker(role)
		if err := b.Stop(stopTime); err != nil {
			return nil, err
		}
		return again(b), nil
	}
}

func pause(role string) func(*victims) (func(context.Context) error, error) {
	return func(v *victims) (func(context.Context) error, error) {
		b := v.broker(role)
		if err := b.Pause(); err != nil {
			return nil, err
		}
		return func(ctx context.Context) error {
			if err := b.Resume(); err != nil {
				return err
			}
			return b.Ready(ctx)
		}, nil
	}
}

func storeKill(v *victims) (func(context.Context) error, error) {
	v.Store.Kill()
	return func(ctx context.Context) error {
		if err := v.Store.Start(); err != nil {
			return err
		}
		return v.Store.Ready(ctx)
	}, nil
}

func storePause(v *victims) (func(context.Context) error, error) {
	if err := v.Store.Pause(); err != nil {
		return nil, err
	}
	return func(context.Context) error { return v.Store.Resume() }, nil
}

func storeFault(f storefault.Fault) func(*victims) (func(context.Context) error, error) {
	return func(v *victims) (func(context.Context) error, error) {
		v.Store.Proxy.Set(f)
		return func(context.Context) error {
			v.hit = append(v.hit, fmt.Sprintf("%d requests", v.Store.Proxy.Hits()))
			v.Store.Proxy.Set(storefault.Healthy)
			return nil
		}, nil
	}
}
