package main

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"firn/zkmeta/zktest"
)

// TestUnregister: a broker leaves the cluster's list once it is stopped and empty,
// and until then is told why it doesn't.
func TestUnregister(t *testing.T) {
	connect := zktest.Start(t).Chroot()
	start := func(id string) *embedded {
		e, err := startEmbedded(t.Context(), t.TempDir(), map[string]string{"zookeeper.connect": connect, "broker.id": id,
			"zookeeper.session.timeout.ms": "30000", "archive.url": ""})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.stop() })
		return e
	}
	one, two := start("1"), start("2")
	check := func(id int32, words string) {
		t.Helper()
		err := withClient(one.addr, func(cl *kgo.Client, _ *kadm.Client) error { return unregister(t.Context(), cl, id) })
		if words == "" && err != nil || words != "" && (err == nil || !strings.Contains(err.Error(), words)) {
			t.Errorf("broker %d: %v, want %q", id, err, words)
		}
	}
	known := func(want ...int32) {
		t.Helper()
		err := withClient(one.addr, func(cl *kgo.Client, a *kadm.Client) error {
			v, err := loadWhole(t.Context(), cl, a)
			if got := v.known(); err == nil && !slices.Equal(got, want) {
				t.Errorf("known: %v, want %v", got, want)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	topics := func(f func(a *kadm.Client) error) {
		t.Helper()
		if err := admin(one.addr, f); err != nil {
			t.Fatal(err)
		}
	}
	topics(func(a *kadm.Client) error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for { // the first hears of the second a moment after that one is ready
			brokers, err := a.ListBrokers(ctx)
			if err != nil {
				return err
			}
			if len(brokers) == 2 {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		_, err := a.CreateTopic(t.Context(), 1, 2, nil, "t")
		return err
	})
	known(1, 2)
	check(9, "not currently registered")
	check(2, "is running")
	if err := two.stop(); err != nil {
		t.Fatal(err)
	}
	check(2, "t-0")
	topics(func(a *kadm.Client) error {
		_, err := a.DeleteTopic(t.Context(), "t")
		return err
	})
	known(1, 2) // though nothing is placed on it
	check(2, "")
	known(1)
	check(2, "not currently registered")
}
