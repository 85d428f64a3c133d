package checker

import "fmt"

// has looks at a batch, or at records, of a dump.
func (c *check) has(o *op) error {
	d := c.dumps[o.who]
	if d == nil {
		return fmt.Errorf("%s has records, but there is no dump of it", o.who)
	}
	if len(o.runs) > 0 && o.runs[0].Epoch >= 0 {
		c.batch(d, &o.runs[0])
	}
	for i := range o.runs {
		r := o.runs[i]
		if r.Offset != d.next && r.Offset >= d.start {
			c.report.flag(Hole, "%s has offset %d where %d is due", d.source, r.Offset, d.next)
			d.missing += max(0, r.Offset-d.next)
		}
		for ; r.Count > 0; r.Offset, r.N, r.Count = r.Offset+1, r.N+1, r.Count-1 {
			v := c.see(&r, "in "+d.source)
			if d == c.log && v != garbage {
				c.lies(v, r.Offset)
			}
		}
		d.next = max(d.next, r.Offset)
	}
	return nil
}

// batch compares a batch with what other sources have at its place.
func (c *check) batch(d *dump, r *Run) {
	c.report.Batches++
	if r.Epoch < d.epoch {
		c.report.flag(EpochOrder, "%s has epoch %d at %d, after epoch %d", d.source, r.Epoch, r.Offset, d.epoch)
	}
	d.epoch = max(d.epoch, r.Epoch)
	b, known := c.batches[r.Offset]
	switch {
	case !known:
		c.batches[r.Offset] = batch{r.CRC, r.Epoch, d.source}
	case b.crc != r.CRC || b.epoch != r.Epoch:
		c.report.flag(Divergence, "the batch at %d is %08x of epoch %d in %s, %08x of epoch %d in %s", r.Offset, b.crc, b.epoch, b.source, r.CRC, r.Epoch, d.source)
	}
}

// lies notes where a value lies in the final log.
func (c *check) lies(v value, offset int64) {
	p, w := c.producers[v.producer()], c.write(v)
	switch {
	case w.seen >= 0 && p.idempotent:
		c.report.flag(Duplicate, "%s is at %d and at %d", c.name(v), w.seen, offset)
		return
	case w.seen >= 0:
		c.report.Repeated++
		return
	}
	w.seen = offset
	if p.idempotent && v.n() < p.last {
		c.report.flag(Reordered, "%s at %d lies behind %s.%d", c.name(v), offset, p.name, p.last)
	}
	p.last = max(p.last, v.n())
}

// checkDumps compares the sources' bounds.
func (c *check) checkDumps() {
	archive := c.dumps[SourceArchive]
	for _, d := range c.order {
		if d.next < d.end {
			c.report.flag(Hole, "%s is said to end at %d, and ends at %d", d.source, d.end, d.next)
		}
		if c.log == nil || d == c.log {
			continue
		}
		if d == archive {
			if d.end > c.log.end {
				c.report.flag(ArchiveAhead, "the archive ends at %d, the log at %d", d.end, c.log.end)
			}
			if d.start > c.log.start && d.start < d.end {
				c.report.flag(Unreachable, "the archive begins at %d, the log at %d", d.start, c.log.start)
			}
			continue
		}
		if d.end < c.log.end {
			c.report.flag(Behind, "%s ends at %d, the log at %d", d.source, d.end, c.log.end)
		}
		reached := c.log.start
		if archive != nil {
			reached = max(reached, archive.end)
		}
		if d.start > reached {
			c.report.flag(Unreachable, "%s begins at %d, and the archive reaches to %d", d.source, d.start, reached)
		}
	}
}
