package tiering

import (
	"fmt"
	"time"
)

// Policy is what a topic's configuration says of its archive. Sizes are in
// bytes, -1 stands for no limit.
type Policy struct {
	// Enabled is remote.storage.enable. Switched on later, the sealed segments
	// that are there go up.
	Enabled bool
	// CopyDisabled is remote.log.copy.disable: nothing more goes up, what is
	// archived stays readable. local.retention.* does not hold then.
	CopyDisabled bool
	// DeleteOnDisable is remote.log.delete.on.disable: when Enabled goes, what
	// is archived goes too.
	DeleteOnDisable bool
	// RetentionMs and RetentionBytes hold for the whole log, the local ones for
	// the disk; the caller has resolved -2.
	RetentionMs, RetentionBytes           int64
	LocalRetentionMs, LocalRetentionBytes int64
	// CopyLagMs and CopyLagBytes (remote.copy.lag.*) keep a sealed segment from
	// going up at once: until it is so old or so many bytes follow it, whichever
	// comes first. 0 is at once, -1 as long as the local retention lets it.
	CopyLagMs, CopyLagBytes int64
	// RollAfter (archive.upload.max.interval.ms) seals the active segment for
	// upload so long after its first append, if it has RollBytes
	// (archive.upload.min.bytes); RollSmallAfter
	// (archive.upload.small.max.interval.ms) in any case. 0 means 1 hour, 1 MiB
	// and 24 hours. Each seal costs at least four requests to the store.
	RollAfter, RollSmallAfter time.Duration
	RollBytes                 int64
}

func (p Policy) withDefaults() Policy {
	if p.RollAfter == 0 {
		p.RollAfter = time.Hour
	}
	if p.RollSmallAfter == 0 {
		p.RollSmallAfter = 24 * time.Hour
	}
	if p.RollBytes == 0 {
		p.RollBytes = 1 << 20
	}
	return p
}

// copies reports whether segments go up.
func (p *Policy) copies() bool { return p.Enabled && !p.CopyDisabled }

// deletes reports whether what is only archived is to go.
func (p *Policy) deletes() bool { return !p.Enabled && p.DeleteOnDisable }

// whole limits the log, archived part included.
func (p *Policy) whole() limits { return limits{p.RetentionMs, p.RetentionBytes} }

// local limits what the disk keeps of what is archived. Where nothing goes up
// any more, the disk keeps all (KIP-950).
func (p *Policy) local() limits {
	if !p.copies() {
		return p.whole()
	}
	return limits{p.LocalRetentionMs, p.LocalRetentionBytes}
}

// mayCopy reports whether copy lag lets a segment go up: it is age old by its
// largest timestamp, and after bytes of the log follow it (KIP-1241).
func (p *Policy) mayCopy(age time.Duration, after int64) bool {
	ms, bytes := p.CopyLagMs, p.CopyLagBytes
	if ms == -1 {
		ms = p.LocalRetentionMs
	}
	if bytes == -1 {
		bytes = p.LocalRetentionBytes
	}
	switch {
	case ms == 0 || bytes == 0 || age < 0: // a timestamp in the future must not hold it back for ever
		return true
	case ms > 0 && age.Milliseconds() >= ms:
		return true
	}
	return bytes > 0 && after >= bytes
}

// waits says until when an active segment of size bytes stays one, for words.
func (p *Policy) waits(size int64) string {
	if size >= p.RollBytes {
		return fmt.Sprintf("the active segment goes up when it is full or %s old", briefly(p.RollAfter))
	}
	return fmt.Sprintf("the active segment goes up when it is full, %s old if it has %d bytes by then, or else %s old",
		briefly(p.RollAfter), p.RollBytes, briefly(p.RollSmallAfter))
}

// briefly is d without zeros at its end: 24h.
func briefly(d time.Duration) string {
	switch {
	case d >= time.Hour && d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d >= time.Minute && d%time.Minute == 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return d.String()
}

// rollDue reports whether the active segment is to be sealed for upload: its
// first append was age ago. jitter, in [0, 1), is the partition's own, so that
// partitions that began together don't seal together.
func (p *Policy) rollDue(age time.Duration, size int64, jitter float64) bool {
	after := p.RollSmallAfter
	if size >= p.RollBytes {
		after = p.RollAfter
	}
	return size > 0 && age >= after-time.Duration(jitter*0.1*float64(after))
}
