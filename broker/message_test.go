package broker

import (
	"reflect"
	"runtime"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// decoded are the APIs whose requests kmsg decodes.
func decoded() (all []api) {
	for _, a := range apis() {
		if a.handle != nil {
			all = append(all, a)
		}
	}
	return all
}

// No bytes make the decoding of a request panic.
func FuzzMessages(f *testing.F) {
	for _, a := range decoded() {
		for v := a.min; v <= a.max; v++ {
			r := a.key.Request()
			r.SetVersion(v)
			f.Add(int16(a.key), v, r.AppendTo(nil))
			fill(reflect.ValueOf(r).Elem(), 2, 2)
			f.Add(int16(a.key), v, r.AppendTo(nil))
		}
	}
	table := map[int16]api{}
	for _, a := range decoded() {
		table[int16(a.key)] = a
	}
	f.Fuzz(func(t *testing.T, key, version int16, b []byte) {
		a, ok := table[key]
		if !ok || version < a.min || version > a.max {
			return
		}
		r := a.key.Request()
		r.SetVersion(version)
		_ = r.ReadFrom(b)
	})
}

// fill puts n elements into every list of v, down to depth.
func fill(v reflect.Value, n, depth int) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Field(i); f.CanSet() {
				fill(f, n, depth)
			}
		}
	case reflect.Slice:
		if depth == 0 || v.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			if d := v.Index(i).Addr().MethodByName("Default"); d.IsValid() {
				d.Call(nil)
			}
			fill(v.Index(i), n, depth-1)
		}
	}
}

// A byte of a request takes no more memory, once decoded, than the budget for
// requests reckons with (S2): the meter is lists of the smallest elements.
func TestDecodedRequestsAreNotMuchLarger(t *testing.T) {
	const most = 64
	for _, a := range decoded() {
		for v := a.min; v <= a.max; v++ {
			r := a.key.Request()
			r.SetVersion(v)
			fill(reflect.ValueOf(r).Elem(), 2000, 1)
			b := r.AppendTo(nil)
			if len(b) < 1000 {
				continue // it has no lists
			}
			into := a.key.Request()
			into.SetVersion(v)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if err := into.ReadFrom(b); err != nil {
				t.Errorf("%s v%d: %v", kmsg.NameForKey(int16(a.key)), v, err)
			}
			runtime.ReadMemStats(&after)
			if factor := float64(after.TotalAlloc-before.TotalAlloc) / float64(len(b)); factor > most {
				t.Errorf("%s v%d: %.0f bytes a byte", kmsg.NameForKey(int16(a.key)), v, factor)
			}
		}
	}
}
