package config

import (
	"strings"
	"testing"
)

// TestWhatARunningBrokerCantTakeOnIsRefused: else it would be described as in force.
func TestWhatARunningBrokerCantTakeOnIsRefused(t *testing.T) {
	b := mustBroker(t, Static{File: map[string]string{"log.retention.ms": "1000", "log.retention.bytes": "1000"}})
	const threads = "Dynamic thread count update validation failed for "
	for kv, want := range map[string]string{
		"listeners=PLAINTEXT://:9999":                  "while the broker runs",
		"listener.security.protocol.map=PLAINTEXT:SSL": "while the broker runs",
		"metric.reporters=x":                           "while the broker runs",
		"principal.builder.class=x":                    "while the broker runs",
		"max.connection.creation.rate=5":               "while the broker runs",
		"archive.sweep.interval.ms=5000":               "while the broker runs",
		"num.io.threads=400":                           threads + "num.io.threads=400, value should not be greater than double the current value 8",
		"num.io.threads=3":                             threads + "num.io.threads=3, value should be at least half the current value 8",
		"num.replica.fetchers=100":                     threads,
		"log.local.retention.ms=1001":                  "Value must not be more than log.retention.ms property value: 1000",
		"log.local.retention.bytes=-1":                 "Value must not be more than log.retention.bytes property value: 1000",
		"num.io.threads=16":                            "",
		"num.replica.fetchers=2":                       "",
		"log.local.retention.ms=1000":                  "",
		"log.local.retention.ms=-2":                    "",
		"log.cleaner.threads=2":                        "",
		"leader.replication.throttled.rate=5":          "",
	} {
		key, value, _ := strings.Cut(kv, "=")
		err := b.CheckDynamic(nil, map[string]string{key: value}, true)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", kv, err, want)
		}
	}
	if err := b.CheckDynamic(map[string]string{"num.io.threads": "16"}, map[string]string{"num.io.threads": "32"}, true); err != nil {
		t.Errorf("twice what the broker has by now: %v", err)
	}
	short := mustBroker(t, Static{Profile: map[string]string{"log.local.retention.ms": "3600000", "log.retention.ms": "-1"}})
	if err := short.CheckDynamic(nil, map[string]string{"log.retention.ms": "60000"}, false); err != nil {
		t.Errorf("the whole is shortened below the profile's local part, which is capped: %v", err)
	}
}
