package config

import (
	"fmt"
	"slices"
)

// incoherent is a broker key whose value can't stand, alone or beside another's.
type incoherent struct {
	key string // where the value is from
	why string
}

func (e *incoherent) Error() string { return e.why }

// coherent holds what Kafka requires beyond each key's own range. Topics inherit
// from keys that take any number (log.roll.ms) what they would refuse themselves
// (segment.ms=0), and a retention of 0 for all topics is a mistake, never a wish:
// it deletes everything. A single topic may have it. Its errors are *incoherent.
func (b *Broker) coherent() error {
	refuse := func(key, format string, args ...any) error {
		return &incoherent{key, fmt.Sprintf(format, args...)}
	}
	for _, k := range b.reg.Keys(ScopeTopic) {
		if len(k.Synonyms) == 0 {
			continue
		}
		v := b.topicSources(k, nil, false)[0]
		if k.Name == "retention.ms" && v.Value == "0" {
			return refuse(v.Name, "log.retention.ms must be unlimited (-1) or, greater than or equal to 1, and %s is 0", v.Name)
		}
		as := *k
		as.Name = v.Name
		if err := as.Check(v.Value); err != nil {
			return refuse(v.Name, "%v", err)
		}
	}
	const wait, socket, lag = "replica.fetch.wait.max.ms", "replica.socket.timeout.ms", "replica.lag.time.max.ms"
	if b.Int(wait) > b.Int(socket) {
		return refuse(b.said(wait, socket), "%s is %d and must be at least %s, %d, to prevent unnecessary socket timeouts", socket, b.Int(socket), wait, b.Int(wait))
	}
	if b.Int(wait) > b.Int(lag) {
		return refuse(b.said(wait, lag), "%s is %d and must not be more than %s, %d, to prevent frequent changes in ISR", wait, b.Int(wait), lag, b.Int(lag))
	}
	const queued, largest = "queued.max.request.bytes", "socket.request.max.bytes"
	if n := b.Int(queued); b.IsSet(queued) && n > 0 && n < b.Int(largest) {
		return refuse(queued, "%s is %d and must be at least %s, %d", queued, n, largest, b.Int(largest))
	}
	if b.Int("max.connections.per.ip") == 0 && b.String("max.connections.per.ip.overrides") == "" {
		return refuse("max.connections.per.ip", "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides is set")
	}
	return nil
}

// said is the first of keys that the user gave.
func (b *Broker) said(keys ...string) string {
	return keys[max(0, slices.IndexFunc(keys, b.IsSet))]
}
