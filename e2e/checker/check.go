package checker

import (
	"fmt"
	"io"
)

// The sources of dumps that are not replicas.
const (
	SourceLog     = "log"
	SourceArchive = "archive"
)

// Check reads the history of a partition and says what it shows.
func Check(history io.ReadSeeker) (*Report, error) {
	c := &check{
		names: map[string]int{}, at: offsets{}, final: offsets{},
		dumps: map[string]*dump{}, readers: map[string]int64{}, batches: map[int64]batch{},
		views: map[string]int64{}, leaders: map[int64]string{},
	}
	if err := scan(history, c.first); err != nil {
		return nil, err
	}
	if _, err := history.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	if err := scan(history, c.placeFinal); err != nil {
		return nil, err
	}
	if _, err := history.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	if err := scan(history, c.second); err != nil {
		return nil, err
	}
	c.checkWrites()
	c.checkOffsets()
	c.checkDumps()
	return &c.report, nil
}

// check is the state of one partition's check.
type check struct {
	report    Report
	names     map[string]int // producer to its place in producers
	producers []*producer
	at        offsets // the value that an offset was first seen with
	final     offsets // what the log holds in the end
	log       *dump   // its bounds
	dumps     map[string]*dump
	order     []*dump // in the history's order
	batches   map[int64]batch
	readers   map[string]int64 // the offset that a reader reads next, -1 if anything may come
	views     map[string]int64 // the highest epoch that a broker told
	leaders   map[int64]string // by epoch
	watermarks
}

// batch is a batch as its first source has it.
type batch struct {
	crc    uint32
	epoch  int32
	source string
}

// first collects what was written and asked for.
func (c *check) first(o *op) error {
	switch o.verb {
	case "write":
		return c.written(o)
	case "dump":
		if c.dumps[o.who] != nil {
			return fmt.Errorf("a second dump of %s", o.who)
		}
		d := &dump{source: o.who, start: o.n, end: o.m, next: o.n, epoch: -1}
		c.dumps[o.who], c.order = d, append(c.order, d)
		if o.who == SourceLog {
			c.log = d
		}
	case "leader":
		c.leader(o)
	default:
		c.watermarks.note(o)
	}
	return nil
}

func (c *check) written(o *op) error {
	i, known := c.names[o.value.Producer]
	if !known {
		p, err := newProducer(o.value.Producer)
		if err != nil {
			return err
		}
		i = len(c.producers)
		c.names[p.name], c.producers = i, append(c.producers, p)
	}
	p := c.producers[i]
	for int64(len(p.writes)) <= o.value.N {
		p.writes = append(p.writes, write{seen: -1, offset: -1})
	}
	w := &p.writes[o.value.N]
	if w.outcome != unwritten {
		return fmt.Errorf("%s.%d is written twice: values are unique", p.name, o.value.N)
	}
	w.from, w.to = o.from, o.to
	switch o.arg {
	case "ok":
		w.outcome, w.offset = acked, o.n
		if p.weak { // it may be lost, and its offset be another's
			c.report.AckedWeak++
			break
		}
		c.report.Acked++
		c.place(o.n, c.value(&o.value), "acknowledged")
		c.ack(w)
	case "fail":
		w.outcome = failed
		c.report.Failed++
	default:
		w.outcome = unknown
		c.report.Unknown++
	}
	return nil
}

// value is the compact form of a run's first value; garbage for nobody's.
func (c *check) value(r *Run) value {
	i, ok := c.names[r.Producer]
	if !ok || r.N >= int64(len(c.producers[i].writes)) {
		return garbage
	}
	return value(i+1)<<32 | value(r.N)
}

func (c *check) name(v value) string {
	if v == garbage {
		return "garbage"
	}
	return fmt.Sprintf("%s.%d", c.producers[v.producer()].name, v.n())
}

func (c *check) write(v value) *write { return &c.producers[v.producer()].writes[v.n()] }

// place notes that an offset was seen with a value.
func (c *check) place(offset int64, v value, how string) {
	if offset < 0 {
		c.report.flag(Phantom, "offset %d was %s", offset, how)
		return
	}
	switch before := c.at.at(offset); before {
	case 0:
		c.at.set(offset, v)
	case v:
	default:
		c.report.flag(TwoValues, "offset %d holds %s, and was %s with %s", offset, c.name(before), how, c.name(v))
	}
}

// placeFinal notes what the log holds in the end, so that reads are compared
// with it wherever the dump stands in the history.
func (c *check) placeFinal(o *op) error {
	if o.verb != "has" || o.who != SourceLog {
		return nil
	}
	for i := range o.runs {
		r := o.runs[i]
		for ; r.Count > 0; r.Offset, r.N, r.Count = r.Offset+1, r.N+1, r.Count-1 {
			c.final.set(r.Offset, c.value(&r))
		}
	}
	return nil
}

// second looks at what was seen.
func (c *check) second(o *op) error {
	switch o.verb {
	case "seek":
		c.readers[o.who] = o.n
	case "read":
		c.read(o)
	case "has":
		return c.has(o)
	}
	return nil
}

// see looks at one record that somebody got.
func (c *check) see(r *Run, how string) value {
	v := c.value(r)
	switch {
	case r.Producer == "":
		c.report.flag(Garbled, "offset %d was %s with nothing that anybody wrote to this partition", r.Offset, how)
		return garbage
	case v == garbage || c.write(v).outcome == unwritten:
		c.report.flag(Phantom, "offset %d was %s with %s.%d, which nobody wrote", r.Offset, how, r.Producer, r.N)
		return garbage
	case c.write(v).outcome == failed:
		c.report.flag(FailedSeen, "offset %d was %s with %s, whose write failed", r.Offset, how, c.name(v))
	}
	c.place(r.Offset, v, how)
	return v
}

// read follows a reader.
func (c *check) read(o *op) {
	next, known := c.readers[o.who]
	if !known {
		next = -1
	}
	for i := range o.runs {
		r := o.runs[i]
		switch {
		case next >= 0 && r.Offset < next && i > 0:
			c.report.flag(ReadOrder, "%s got offset %d after %d in one answer", o.who, r.Offset, next-1)
		case next >= 0 && r.Offset < next:
			c.report.flag(ReadBack, "%s got offset %d where %d was due", o.who, r.Offset, next)
		case next >= 0 && r.Offset > next:
			c.skipped(o.who, next, r.Offset)
		}
		for ; r.Count > 0; r.Offset, r.N, r.Count = r.Offset+1, r.N+1, r.Count-1 {
			c.report.Read++
			c.see(&r, "read by "+o.who)
			if c.log != nil && r.Offset >= c.log.end {
				c.report.flag(Vanished, "%s read offset %d; the log ends at %d", o.who, r.Offset, c.log.end)
			}
		}
		next = r.Offset
	}
	c.readers[o.who] = next
}

// skipped tells whether a reader that went from one offset to another missed
// something that is in the log.
func (c *check) skipped(who string, from, to int64) {
	if c.log == nil {
		return
	}
	for offset := max(from, c.log.start); offset < min(to, c.log.end); offset++ {
		if c.final.at(offset) != 0 {
			c.report.flag(ReadSkip, "%s went from %d to %d; offset %d holds %s", who, from, to, offset, c.name(c.final.at(offset)))
			return
		}
	}
}

// leader compares what brokers say of a partition's leader.
func (c *check) leader(o *op) {
	epoch, leader := o.n, o.arg
	if before, ok := c.views[o.who]; ok && epoch < before {
		c.report.flag(EpochBack, "%s told epoch %d after %d", o.who, epoch, before)
	} else {
		c.views[o.who] = epoch
	}
	if leader == "none" {
		return
	}
	if other, ok := c.leaders[epoch]; ok && other != leader {
		c.report.flag(TwoLeaders, "epoch %d is led by %s and, says %s, by %s", epoch, other, o.who, leader)
	}
	c.leaders[epoch] = leader
}
