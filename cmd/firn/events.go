package main

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"
)

// orders makes the demo's events: a shop's year of orders, each an event with
// its number, in the order of their time. The same seed makes the same year.
type orders struct {
	rng   *rand.Rand
	n     int64 // made so far
	total int64
	from  time.Time
	span  time.Duration
	buf   []byte
}

func newOrders(seed uint64, total int64, from, until time.Time) *orders {
	return &orders{rng: rand.New(rand.NewPCG(seed, seed)), total: total, from: from, span: until.Sub(from)}
}

// event is one order: Value is valid until the next call of next.
type event struct {
	Number int64
	Time   time.Time
	Key    []byte
	Value  []byte
}

func products() []string {
	return []string{"wool socks", "ice axe", "thermos", "head lamp", "rope 60 m", "crampons", "map 1:25000", "sun cream",
		"rain jacket", "trekking poles", "stove", "down bag", "avalanche beacon", "gaiters", "glacier glasses", "first aid kit"}
}

func cities() []string {
	return []string{"Bergen", "Chamonix", "Innsbruck", "Zermatt", "Tromsø", "Bolzano", "Jasper", "Queenstown", "Leh", "El Chaltén"}
}

// next makes the following order, or returns false after the last.
func (o *orders) next() (event, bool) {
	if o.n >= o.total {
		return event{}, false
	}
	// Evenly spread over the year, with the jitter of one step.
	step := float64(o.span) / float64(o.total)
	at := o.from.Add(time.Duration((float64(o.n) + o.rng.Float64()) * step)).Truncate(time.Millisecond)
	customer := o.rng.IntN(50_000)
	ps, cs := products(), cities()
	status := "paid"
	switch r := o.rng.IntN(100); {
	case r < 3:
		status = "refunded"
	case r < 12:
		status = "pending"
	}
	b := append(o.buf[:0], `{"order":`...)
	b = strconv.AppendInt(b, o.n, 10)
	b = append(b, `,"at":"`...)
	b = at.UTC().AppendFormat(b, "2006-01-02T15:04:05.000Z")
	b = append(b, `","customer":"c`...)
	b = strconv.AppendInt(b, int64(customer), 10)
	b = append(b, `","city":"`...)
	b = append(b, cs[customer%len(cs)]...)
	b = append(b, `","status":"`...)
	b = append(b, status...)
	b = append(b, `","items":[`...)
	for i := range 1 + o.rng.IntN(3) {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, `{"product":%q,"count":%d,"cents":%d}`, ps[o.rng.IntN(len(ps))], 1+o.rng.IntN(4), 490+o.rng.IntN(30_000))
	}
	b = append(b, `],"session":"`...)
	b = fmt.Appendf(b, "%016x%016x", o.rng.Uint64(), o.rng.Uint64())
	b = append(b, `"}`...)
	o.buf = b
	e := event{Number: o.n, Time: at, Key: strconv.AppendInt([]byte("c"), int64(customer), 10), Value: b}
	o.n++
	return e, true
}

// orderNumber reads the number back from an event's value.
func orderNumber(value []byte) (int64, error) {
	const head = `{"order":`
	if len(value) < len(head)+1 || string(value[:len(head)]) != head {
		return 0, fmt.Errorf("event does not begin with %s: %.40q", head, value)
	}
	n, i := int64(0), len(head)
	for ; i < len(value) && value[i] >= '0' && value[i] <= '9'; i++ {
		n = n*10 + int64(value[i]-'0')
	}
	if i == len(head) {
		return 0, fmt.Errorf("event has no number: %.40q", value)
	}
	return n, nil
}
