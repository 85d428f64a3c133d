package objstore

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Measured counts the requests to store in reg:
//
//	firn_objstore_requests_total{op,result}    result: ok, not_found, exists, range, denied, canceled, error
//	firn_objstore_request_seconds{op}          a get's until its first byte can be read
//	firn_objstore_bytes_total{dir}             dir: read, written
//	firn_objstore_silent_seconds               how long the store has owed an answer: Silence
//
// A second store under one Registerer counts into the same metrics.
func Measured(store Store, reg prometheus.Registerer) Store {
	m := &measured{
		store:   store,
		flights: newFlights(),
		requests: register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "firn_objstore_requests_total",
			Help: "Requests to the object store by operation and result.",
		}, []string{"op", "result"})),
		seconds: register(reg, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "firn_objstore_request_seconds",
			Help:    "Time of requests to the object store; of a get, until its first byte can be read.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}, []string{"op"})),
	}
	bytes := register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "firn_objstore_bytes_total",
		Help: "Bytes of objects read from and written to the object store.",
	}, []string{"dir"}))
	register(reg, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "firn_objstore_silent_seconds",
		Help: "How long the object store has kept a request waiting without a byte.",
	}, func() float64 { return m.Silence().Seconds() }))
	m.read, m.written = bytes.WithLabelValues("read"), bytes.WithLabelValues("written")
	return m
}

// register registers c, or finds the one that an earlier store has registered.
func register[C prometheus.Collector](reg prometheus.Registerer, c C) C {
	if reg == nil {
		return c
	}
	var have prometheus.AlreadyRegisteredError
	if err := reg.Register(c); errors.As(err, &have) {
		if old, ok := have.ExistingCollector.(C); ok {
			return old
		}
	}
	return c
}

type measured struct {
	store         Store
	flights       *flights
	requests      *prometheus.CounterVec
	seconds       *prometheus.HistogramVec
	read, written prometheus.Counter
}

var _ Swapper = (*measured)(nil)

// Silence is what Silence tells of m.
func (m *measured) Silence() time.Duration { return m.flights.silence() }

// done counts one request that began at start.
func (m *measured) done(op OpKind, start time.Time, err error) {
	m.requests.WithLabelValues(op.String(), result(err)).Inc()
	m.seconds.WithLabelValues(op.String()).Observe(time.Since(start).Seconds())
}

func result(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, ErrNotFound):
		return "not_found"
	case errors.Is(err, ErrExists), errors.Is(err, ErrChanged):
		return "exists"
	case errors.Is(err, ErrRange):
		return "range"
	case errors.Is(err, ErrDenied):
		return "denied"
	case errors.Is(err, context.Canceled):
		return "canceled"
	}
	return "error"
}

func (m *measured) Put(ctx context.Context, key string, body io.ReaderAt, size int64) error {
	start, f := time.Now(), m.flights.start()
	defer f.end()
	err := m.store.Put(ctx, key, flightBody{body, f}, size)
	m.done(OpPut, start, err)
	if err == nil {
		m.written.Add(float64(size))
	}
	return err
}

func (m *measured) Create(ctx context.Context, key string, value []byte) error {
	start, f := time.Now(), m.flights.start()
	defer f.end()
	err := m.store.Create(ctx, key, value)
	m.done(OpCreate, start, err)
	if err == nil {
		m.written.Add(float64(len(value)))
	}
	return err
}

func (m *measured) Swap(ctx context.Context, key string, old, value []byte) error {
	start, f := time.Now(), m.flights.start()
	defer f.end()
	err := Swap(ctx, m.store, key, old, value)
	m.done(OpSwap, start, err)
	if err == nil {
		m.written.Add(float64(len(value)))
	}
	return err
}

func (m *measured) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	start, f := time.Now(), m.flights.start()
	r, err := m.store.GetRange(ctx, key, off, n)
	m.done(OpGet, start, err)
	if err != nil {
		f.end()
		return nil, err
	}
	f.ours()
	return &measuredStream{r, m.read, f}, nil
}

// List counts as one request, however many pages it takes; its time includes
// what yield takes.
func (m *measured) List(ctx context.Context, prefix string, yield func(Object) error) error {
	start, f := time.Now(), m.flights.start()
	defer f.end()
	var stop error
	err := m.store.List(ctx, prefix, func(o Object) error {
		f.ours()
		defer f.theirs()
		stop = yield(o)
		return stop
	})
	if stop != nil {
		m.done(OpList, start, nil)
		return err
	}
	m.done(OpList, start, err)
	return err
}

func (m *measured) Delete(ctx context.Context, key string) error {
	start, f := time.Now(), m.flights.start()
	defer f.end()
	err := m.store.Delete(ctx, key)
	m.done(OpDelete, start, err)
	return err
}

// Folders counts as a list.
func (m *measured) Folders(ctx context.Context, prefix string) ([]string, error) {
	start, f := time.Now(), m.flights.start()
	defer f.end()
	names, err := Folders(ctx, m.store, prefix)
	m.done(OpList, start, err)
	return names, err
}

// AbortIncomplete is not counted: it happens once a sweep.
func (m *measured) AbortIncomplete(ctx context.Context, prefix string, keep func(string) bool) (int, error) {
	return AbortIncomplete(ctx, m.store, prefix, keep)
}

type measuredStream struct {
	io.ReadCloser
	bytes prometheus.Counter
	f     *flight
}

func (s *measuredStream) Read(p []byte) (int, error) {
	s.f.theirs()
	n, err := s.ReadCloser.Read(p)
	s.f.ours()
	s.bytes.Add(float64(n))
	return n, err
}

func (s *measuredStream) Close() error {
	s.f.end()
	return s.ReadCloser.Close()
}

func (s *measuredStream) TakeFile() (File, int64, bool) { return TakeFile(s.ReadCloser) }
