package config

import (
	"strings"
	"testing"
)

// What Apache Kafka 4.3 refuses to start with though each value has its type.
var badAlone = map[string]string{
	"log.retention.ms=0":                  "log.retention.ms must be unlimited (-1) or, greater than or equal to 1, and log.retention.ms is 0",
	"log.retention.minutes=0":             "log.retention.minutes is 0",
	"log.retention.hours=0":               "log.retention.hours is 0",
	"log.roll.ms=0":                       "Invalid value 0 for configuration log.roll.ms: Value must be at least 1",
	"log.roll.hours=0":                    "Value must be at least 1",
	"log.roll.jitter.ms=-1":               "Invalid value -1 for configuration log.roll.jitter.ms: Value must be at least 0",
	"log.flush.interval.ms=-1":            "Invalid value -1 for configuration log.flush.interval.ms: Value must be at least 0",
	"replica.socket.timeout.ms=100":       "replica.fetch.wait.max.ms",
	"replica.lag.time.max.ms=100":         "replica.fetch.wait.max.ms",
	"queued.max.request.bytes=4096":       "socket.request.max.bytes",
	"max.connections.per.ip=0":            "max.connections.per.ip.overrides",
	"compression.gzip.level=0":            "Value must be between 1 and 9 or equal to -1",
	"log.cleaner.min.cleanable.ratio=NaN": "Not a number",
}

func TestAStartThatMakesNoSenseIsRefused(t *testing.T) {
	for kv, want := range badAlone {
		key, value, _ := strings.Cut(kv, "=")
		_, _, err := NewBroker(NewRegistry(), Static{Set: map[string]string{key: value}})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "(--set "+key+")") {
			t.Errorf("%s: %v, want %q and where it is from", kv, err, want)
		}
	}
	mustBroker(t, Static{Set: map[string]string{"log.retention.ms": "1", "log.retention.hours": "0"}})
}

// TestARetentionBelowZeroIsWithoutEnd: as in Kafka, in whichever unit.
func TestARetentionBelowZeroIsWithoutEnd(t *testing.T) {
	for _, key := range []string{"log.retention.ms", "log.retention.minutes", "log.retention.hours"} {
		if got := mustBroker(t, Static{File: map[string]string{key: "-7"}}).Topic(nil, false).RetentionMs; got != -1 {
			t.Errorf("%s=-7: retention.ms %d, want -1", key, got)
		}
	}
}

// TestNoDynamicChangeDeletesEverything: log.retention.ms=0 for all topics. A topic
// may still have it for itself, as in Kafka.
func TestNoDynamicChangeDeletesEverything(t *testing.T) {
	b := mustBroker(t, Static{})
	for _, own := range []bool{false, true} {
		for kv, want := range map[string]string{
			"log.retention.ms=0":       "log.retention.ms must be unlimited (-1)",
			"log.roll.ms=0":            "Value must be at least 1",
			"max.connections.per.ip=0": "max.connections.per.ip.overrides",
		} {
			key, value, _ := strings.Cut(kv, "=")
			if err := b.CheckDynamic(nil, map[string]string{key: value}, own); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s (own: %t): %v, want %q", kv, own, err, want)
			}
		}
		if err := b.CheckDynamic(nil, map[string]string{"log.retention.ms": "-1"}, own); err != nil {
			t.Error(err)
		}
	}
	below := mustBroker(t, Static{File: map[string]string{"log.retention.hours": "0", "log.retention.ms": "5"}})
	below = below.With(map[string]string{"log.retention.ms": "7"}, nil)
	if err := below.CheckDynamic(map[string]string{"log.retention.ms": "7"}, nil, false); err != nil {
		t.Errorf("a value that leaves an even one to the file: %v", err)
	}
	if err := b.CheckTopic("t", nil, map[string]string{"retention.ms": "0"}); err != nil {
		t.Errorf("a topic that keeps nothing: %v", err)
	}
}

// TestAUsersRetentionOutranksTheProfiles, in whichever unit it is.
func TestAUsersRetentionOutranksTheProfiles(t *testing.T) {
	s := Static{Profile: map[string]string{"log.retention.ms": "-1"}, Set: map[string]string{"log.retention.hours": "2"}}
	if got := mustBroker(t, s).Topic(nil, false).RetentionMs; got != 2*3600_000 {
		t.Errorf("retention.ms %d, want two hours", got)
	}
	s.Set["log.retention.hours"] = "0"
	if _, _, err := NewBroker(NewRegistry(), s); err == nil {
		t.Error("log.retention.hours=0 was taken")
	}
}
