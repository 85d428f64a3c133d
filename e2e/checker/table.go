package checker

import "fmt"

// value is the nth record of a producer: the producer's number and n. Zero is
// no value.
type value uint64

func (v value) producer() int { return int(v>>32) - 1 }
func (v value) n() int64      { return int64(v & 0xffffffff) }

const garbage value = 1<<64 - 1

// page is how many offsets share a piece of memory.
const page = 4096

// offsets is a value for each offset.
type offsets map[int64]*[page]value

func (o offsets) at(offset int64) value {
	if p := o[offset/page]; p != nil && offset >= 0 {
		return p[offset%page]
	}
	return 0
}

func (o offsets) set(offset int64, v value) {
	p := o[offset/page]
	if p == nil {
		p = new([page]value)
		o[offset/page] = p
	}
	p[offset%page] = v
}

type outcome uint8

const (
	unwritten outcome = iota
	acked
	failed
	unknown
)

// write is what a producer did.
type write struct {
	from, to, offset int64
	seen             int64 // where it lies in the end, -1 if nowhere
	outcome          outcome
}

// producer is what one producer wrote, by number.
type producer struct {
	name       string
	writes     []write
	last       int64 // n of its last record in the dump that is being read, -1 for none
	idempotent bool
	weak       bool // acks=1: may be lost
}

// promise is told by the first letter of a producer's name.
func newProducer(name string) (*producer, error) {
	p := &producer{name: name, last: -1}
	switch name[0] {
	case 'i':
		p.idempotent = true
	case 'n':
	case 'w':
		p.weak = true
	default:
		return nil, fmt.Errorf("producer %q: its name begins with i, n or w", name)
	}
	return p, nil
}

// dump is what a source holds in the end.
type dump struct {
	source     string
	start, end int64
	next       int64 // the offset that is due
	epoch      int32
	missing    int64 // offsets within the bounds that it lacks
}
