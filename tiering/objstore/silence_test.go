package objstore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// slowBody is a body that its owner takes long to hand out.
type slowBody struct{ io.ReaderAt }

func (b slowBody) ReadAt(p []byte, off int64) (int, error) {
	time.Sleep(30 * time.Second)
	return b.ReaderAt.ReadAt(p, off)
}

func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := 40 * time.Second
		f := Inject(NewMem(), func(op Op) Fault { return Fault{Delay: hang} })
		s := Measured(f, prometheus.NewRegistry())
		check := func(what string, want time.Duration) {
			t.Helper()
			synctest.Wait()
			if got := Silence(s); got != want {
				t.Errorf("%s: silent for %v, want %v", what, got, want)
			}
		}
		check("at first", 0)
		done := make(chan error, 2)
		go func() { done <- s.Put(t.Context(), "k", bytes.NewReader([]byte("value")), 5) }()
		time.Sleep(10 * time.Second)
		check("a PUT hangs", 10*time.Second)
		go func() { done <- s.List(t.Context(), "", func(Object) error { return nil }) }()
		time.Sleep(5 * time.Second)
		check("a LIST too", 15*time.Second)
		if err := errors.Join(<-done, <-done); err != nil {
			t.Fatal(err)
		}
		check("both are answered", 0)

		hang = 0
		go func() { done <- s.Put(t.Context(), "slow", slowBody{bytes.NewReader([]byte("value"))}, 5) }()
		time.Sleep(20 * time.Second)
		check("the body is what takes time", 0)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		r, err := s.GetRange(t.Context(), "k", 0, 5)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		check("the reader pauses", 0)
		if b, err := io.ReadAll(r); err != nil || string(b) != "value" {
			t.Fatalf("%q, %v", b, err)
		}
		r.Close()

		hang = time.Hour
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _, err := s.GetRange(ctx, "k", 0, 5); done <- err }()
		time.Sleep(12 * time.Second)
		check("a GET hangs", 12*time.Second)
		cancel()
		<-done
		check("it is given up", 0)
	})
	if Silence(NewMem()) != 0 {
		t.Error("a store that doesn't tell is silent")
	}
}
