package cache

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"firn/tiering/objstore"
)

const (
	memoryTier = iota
	diskTier
)

type metrics struct {
	hits, misses, evictions [2]prometheus.Counter // by tier
	memory, diskBytes       prometheus.Gauge
	gets                    [4]prometheus.Counter // ok, not found, failed, canceled
	bytes                   prometheus.Counter
	retries, hedges         prometheus.Counter
	corrupt                 prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels))
	}
	byTier := func(v *prometheus.CounterVec) [2]prometheus.Counter {
		return [2]prometheus.Counter{v.WithLabelValues("memory"), v.WithLabelValues("disk")}
	}
	size := register(reg, prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "firn_cache_bytes", Help: "Bytes that the cache of archived blocks holds.",
	}, []string{"tier"}))
	gets := counter("firn_cache_gets_total", "GETs to the object store, by outcome.", "outcome")
	return &metrics{
		hits:      byTier(counter("firn_cache_hits_total", "Blocks that were here when a reader came.", "tier")),
		misses:    byTier(counter("firn_cache_misses_total", "Blocks that were not here when a reader came.", "tier")),
		evictions: byTier(counter("firn_cache_evictions_total", "Blocks evicted.", "tier")),
		memory:    size.WithLabelValues("memory"),
		diskBytes: size.WithLabelValues("disk"),
		gets: [4]prometheus.Counter{gets.WithLabelValues("ok"), gets.WithLabelValues("not_found"),
			gets.WithLabelValues("failed"), gets.WithLabelValues("canceled")},
		bytes:   counter("firn_cache_get_bytes_total", "Bytes read from the object store.").WithLabelValues(),
		retries: counter("firn_cache_get_retries_total", "GETs tried again after a failure.").WithLabelValues(),
		hedges:  counter("firn_cache_get_hedges_total", "GETs asked a second time because the answer was late.").WithLabelValues(),
		corrupt: counter("firn_cache_corrupt_total", "Blocks from the store or the disk whose checksum did not hold.").WithLabelValues(),
	}
}

// register registers c, or finds the one that an earlier cache has registered.
func register[C prometheus.Collector](reg prometheus.Registerer, c C) C {
	if reg == nil {
		return c
	}
	var have prometheus.AlreadyRegisteredError
	if err := reg.Register(c); errors.As(err, &have) {
		if old, ok := have.ExistingCollector.(C); ok {
			return old
		}
	}
	return c
}

func (m *metrics) looked(tier int, hit bool) {
	if hit {
		m.hits[tier].Inc()
	} else {
		m.misses[tier].Inc()
	}
}

func (m *metrics) evicted(tier int) { m.evictions[tier].Inc() }

func (m *metrics) got(err error) {
	switch {
	case err == nil:
		m.gets[0].Inc()
	case errors.Is(err, objstore.ErrNotFound):
		m.gets[1].Inc()
	case errors.Is(err, context.Canceled):
		m.gets[3].Inc() // the slower of two, or the end
	default:
		m.gets[2].Inc()
	}
}
