package objstore

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var errDown = errors.New("the store is down")

// faultOn makes a hook that answers with f where kind fits.
func faultOn(kind OpKind, f Fault) func(Op) Fault {
	return func(op Op) Fault {
		if op.Kind == kind {
			return f
		}
		return Fault{}
	}
}

func putString(ctx context.Context, s Store, key, v string) error {
	return s.Put(ctx, key, strings.NewReader(v), int64(len(v)))
}

func TestInjectBeforeHasNoEffectAndAfterHas(t *testing.T) {
	m := NewMem()
	f := Inject(m, faultOn(OpPut, Fault{Before: errDown}))
	if err := putString(t.Context(), f, "k", "v"); err != errDown {
		t.Errorf("Put = %v, want %v", err, errDown)
	}
	if got := m.Keys(); len(got) != 0 {
		t.Errorf("a Put that failed before its effect left %q", got)
	}
	f.Set(faultOn(OpPut, Fault{After: errDown}))
	if err := putString(t.Context(), f, "k", "v"); err != errDown {
		t.Errorf("Put = %v, want %v", err, errDown)
	}
	if got := m.Keys(); len(got) != 1 {
		t.Errorf("a Put that failed after its effect left %q", got)
	}
}

func TestInjectHidesWhatWasJustPut(t *testing.T) {
	f := Inject(NewMem(), faultOn(OpPut, Fault{Hide: 2}))
	if err := putString(t.Context(), f, "k", "v"); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		_, err := ReadAll(t.Context(), f, "k", 10)
		if hidden := errors.Is(err, ErrNotFound); hidden != (i < 2) {
			t.Errorf("get %d: %v", i, err)
		}
	}
}

func TestInjectCutsAndCorruptsReplies(t *testing.T) {
	f := Inject(NewMem(), nil)
	if err := putString(t.Context(), f, "k", "0123456789"); err != nil {
		t.Fatal(err)
	}
	f.Set(faultOn(OpGet, Fault{Cut: io.ErrUnexpectedEOF, CutAt: 4}))
	r, err := f.GetRange(t.Context(), "k", 2, 6)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(r); string(b) != "2345" || err != io.ErrUnexpectedEOF {
		t.Errorf("cut reply: %q, %v", b, err)
	}
	f.Set(faultOn(OpGet, Fault{Corrupt: func(off int64, b []byte) {
		if i := 5 - off; i >= 0 && i < int64(len(b)) {
			b[i] ^= 1
		}
	}}))
	if b, err := ReadAll(t.Context(), f, "k", 100); string(b) != "0123446789" || err != nil {
		t.Errorf("corrupted reply: %q, %v", b, err)
	}
	f.Set(nil)
	if b, err := ReadAll(t.Context(), f, "k", 100); string(b) != "0123456789" || err != nil {
		t.Errorf("the object itself changed: %q, %v", b, err)
	}
}

func TestInjectHoldsAndDelaysUntilTheContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		f := Inject(NewMem(), faultOn(OpDelete, Fault{Hold: hold, Delay: time.Minute}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := f.Delete(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("held: %v", err)
		}
		close(hold)
		start := time.Now()
		if err := f.Delete(t.Context(), "k"); err != nil || time.Since(start) != time.Minute {
			t.Errorf("delayed: %v after %v", err, time.Since(start))
		}
	})
}
