package checker

import (
	"fmt"
	"slices"
	"strings"
)

// Anomaly is a broken promise, in words.
type Anomaly struct {
	Kind Kind
	What string
}

func (a Anomaly) String() string { return string(a.Kind) + ": " + a.What }

// examples is how many anomalies of a kind are kept in words.
const examples = 5

// Report is what a history shows.
type Report struct {
	Acked, Failed, Unknown int64 // writes by outcome
	AckedWeak              int64 // at acks=1; not among Acked
	Read                   int64 // records that readers got
	Batches                int64 // batches compared between copies
	// Repeated are records of producers without idempotence that are there more
	// than once, and LostWeak acknowledged at acks=1 and gone: both are allowed.
	Repeated, LostWeak int64

	Counts    map[Kind]int64
	Anomalies []Anomaly // the first of each kind
}

func (r *Report) flag(k Kind, format string, args ...any) {
	if r.Counts == nil {
		r.Counts = map[Kind]int64{}
	}
	if r.Counts[k]++; r.Counts[k] <= examples {
		r.Anomalies = append(r.Anomalies, Anomaly{k, fmt.Sprintf(format, args...)})
	}
}

// Clean tells whether no promise was broken.
func (r *Report) Clean() bool { return len(r.Counts) == 0 }

// Add adds another partition's report, whose anomalies it prefixes with its name.
func (r *Report) Add(partition string, o *Report) {
	r.Acked, r.Failed, r.Unknown = r.Acked+o.Acked, r.Failed+o.Failed, r.Unknown+o.Unknown
	r.AckedWeak += o.AckedWeak
	r.Read, r.Batches = r.Read+o.Read, r.Batches+o.Batches
	r.Repeated, r.LostWeak = r.Repeated+o.Repeated, r.LostWeak+o.LostWeak
	for k, n := range o.Counts {
		if r.Counts == nil {
			r.Counts = map[Kind]int64{}
		}
		r.Counts[k] += n
	}
	for _, a := range o.Anomalies {
		r.Anomalies = append(r.Anomalies, Anomaly{a.Kind, partition + ": " + a.What})
	}
}

func (r *Report) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%d acknowledged, %d failed, %d unknown; %d records read, %d batches compared; %d repeated without idempotence, %d of %d lost at acks=1",
		r.Acked, r.Failed, r.Unknown, r.Read, r.Batches, r.Repeated, r.LostWeak, r.AckedWeak)
	if r.Clean() {
		return s.String() + "; no anomalies"
	}
	for _, k := range Kinds() {
		if n := r.Counts[k]; n > 0 {
			fmt.Fprintf(&s, "\n%s: %d", k, n)
		}
	}
	anomalies := slices.Clone(r.Anomalies)
	slices.SortStableFunc(anomalies, func(a, b Anomaly) int { return strings.Compare(string(a.Kind), string(b.Kind)) })
	for _, a := range anomalies {
		s.WriteString("\n  " + a.String())
	}
	return s.String()
}
