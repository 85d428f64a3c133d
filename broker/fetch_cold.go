package broker

import (
	"context"
	"reflect"
)

// maxPending bounds how many cold partitions are waited on at the same time. The
// next request finds the others: what they wait for arrives all the same.
const maxPending = 64

// cold says whether a partition waits for the archive.
func (f *fetcher) cold() bool {
	for i := range f.parts {
		if f.parts[i].res.Pending != nil {
			return true
		}
	}
	return false
}

// sleepCold is sleep where some partitions wait for the archive: it ends as soon
// as the first has something. A fetch may name any number of them; one goroutine
// waits on all, by reflection, which beside a download costs nothing.
func (f *fetcher) sleepCold(polls context.Context) (over bool) {
	cases := make([]reflect.SelectCase, 0, 8)
	add := func(ch any) {
		cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(ch)})
	}
	add(f.timer.C)
	add(polls.Done())
	add(f.waiter.C())
	for i := range f.parts {
		if ch := f.parts[i].res.Pending; ch != nil && len(cases) < maxPending {
			add(ch)
		}
	}
	chosen, _, _ := reflect.Select(cases)
	return chosen <= 1
}
