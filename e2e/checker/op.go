package checker

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// Run is records of one producer at offsets that follow one another.
type Run struct {
	Offset   int64
	Producer string // "" is what nobody wrote
	N        int64  // of the first
	Count    int64
	// Epoch and CRC of the batch, in dumps; -1 and 0 where they are not known.
	Epoch int32
	CRC   uint32
}

// op is a line of a history.
type op struct {
	verb     string
	from, to int64
	who      string // reader, client, group, broker, source of a dump
	arg      string // outcome of a write, leader
	n, m     int64  // offsets, epochs
	runs     []Run
	value    Run // of a write
}

// scan hands over every line of a history. The op is the scanner's own, until
// visit returns.
func scan(r io.Reader, visit func(*op) error) error {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 64<<10), 64<<20)
	var o op
	for line := 1; sc.Scan(); line++ {
		text, _, _ := strings.Cut(sc.Text(), "#")
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		if err := o.parse(text); err != nil {
			return fmt.Errorf("history, line %d: %w", line, err)
		}
		if err := visit(&o); err != nil {
			return fmt.Errorf("history, line %d: %w", line, err)
		}
	}
	return sc.Err()
}

// shapes tells which fields a verb has: t a time or two, w a name, n a number,
// v a value, o an outcome, r runs.
var shapes = map[string]string{
	"write": "tvo", "seek": "twn", "read": "twr", "range": "twn",
	"latest": "twn", "earliest": "twn", "archived": "twn", "trim": "tn", "past": "tn",
	"commit": "twn", "committed": "twn", "leader": "twan", "dump": "wnm", "has": "wr",
}

func (o *op) parse(text string) error {
	verb, rest, _ := strings.Cut(text, " ")
	shape, ok := shapes[verb]
	if !ok {
		return fmt.Errorf("no operation %q", verb)
	}
	*o = op{verb: verb, runs: o.runs[:0]}
	for _, f := range shape {
		var field string
		field, rest, _ = strings.Cut(rest, " ")
		if field == "" && f != 'r' {
			return fmt.Errorf("%s: a field is missing", verb)
		}
		var err error
		switch f {
		case 't':
			from, to, two := strings.Cut(field, "-")
			if o.from, err = strconv.ParseInt(from, 10, 64); err == nil {
				o.to = o.from
				if two {
					o.to, err = strconv.ParseInt(to, 10, 64)
				}
			}
		case 'w':
			o.who = field
		case 'a':
			o.arg = field
		case 'n':
			o.n, err = strconv.ParseInt(field, 10, 64)
		case 'm':
			o.m, err = strconv.ParseInt(field, 10, 64)
		case 'v':
			err = o.value.parseValue(field)
		case 'o':
			if at, acked := strings.CutPrefix(field, "@"); acked {
				o.arg = "ok"
				o.n, err = strconv.ParseInt(at, 10, 64)
			} else if o.arg = field; field != "fail" && field != "unknown" {
				err = fmt.Errorf("no outcome %q", field)
			}
		case 'r':
			for field != "" {
				var r Run
				if err = r.parse(field); err != nil {
					break
				}
				o.runs = append(o.runs, r)
				field, rest, _ = strings.Cut(rest, " ")
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", verb, err)
		}
	}
	if rest != "" {
		return fmt.Errorf("%s: %q is too much", verb, rest)
	}
	return nil
}

// parse reads 17=i3.5*4/7/1a2b3c4d.
func (r *Run) parse(s string) (err error) {
	*r = Run{Count: 1, Epoch: -1}
	at, value, ok := strings.Cut(s, "=")
	if !ok {
		return fmt.Errorf("%q is no run of records", s)
	}
	if r.Offset, err = strconv.ParseInt(at, 10, 64); err != nil {
		return err
	}
	value, batch, ok := strings.Cut(value, "/")
	if ok {
		epoch, crc, _ := strings.Cut(batch, "/")
		e, err := strconv.ParseInt(epoch, 10, 32)
		if err != nil {
			return err
		}
		r.Epoch = int32(e)
		c, err := strconv.ParseUint(crc, 16, 32)
		if err != nil {
			return err
		}
		r.CRC = uint32(c)
	}
	value, count, ok := strings.Cut(value, "*")
	if ok {
		if r.Count, err = strconv.ParseInt(count, 10, 64); err != nil {
			return err
		}
	}
	if value == "?" {
		return nil
	}
	return r.parseValue(value)
}

// parseValue reads i3.17.
func (r *Run) parseValue(s string) (err error) {
	i := strings.LastIndexByte(s, '.')
	if i < 1 {
		return fmt.Errorf("%q is no value", s)
	}
	r.Producer = s[:i]
	r.N, err = strconv.ParseInt(s[i+1:], 10, 64)
	if err == nil && (r.N < 0 || r.N > 1<<31) {
		err = fmt.Errorf("%q is no value", s)
	}
	return err
}

// appendTo writes r as parse reads it.
func (r *Run) appendTo(b []byte) []byte {
	b = append(strconv.AppendInt(b, r.Offset, 10), '=')
	if r.Producer == "" {
		b = append(b, '?')
	} else {
		b = append(append(b, r.Producer...), '.')
		b = strconv.AppendInt(b, r.N, 10)
	}
	if r.Count > 1 {
		b = strconv.AppendInt(append(b, '*'), r.Count, 10)
	}
	if r.Epoch >= 0 {
		b = strconv.AppendInt(append(b, '/'), int64(r.Epoch), 10)
		b = strconv.AppendUint(append(b, '/'), uint64(r.CRC), 16)
	}
	return b
}

// EachWrite hands over every write of a history, with what became of it.
func EachWrite(history io.Reader, visit func(from, to time.Duration, acked bool)) error {
	return scan(history, func(o *op) error {
		if o.verb == "write" {
			visit(time.Duration(o.from)*time.Microsecond, time.Duration(o.to)*time.Microsecond, o.arg == "ok")
		}
		return nil
	})
}
