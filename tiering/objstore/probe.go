package objstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"
)

// ProbePrefix is where Probe writes; nothing else does.
const ProbePrefix = "probe/"

// ProbeError tells which ability a store lacks, and what to do.
type ProbeError struct {
	Step string // what was tried
	Err  error
	Do   string // advice, a sentence
}

func (e *ProbeError) Error() string {
	return fmt.Sprintf("archive store: %s: %v. %s", e.Step, e.Err, e.Do)
}
func (e *ProbeError) Unwrap() error { return e.Err }

var (
	errOverwrote = errors.New("the store overwrote an object that it should have refused to")
	errWrong     = errors.New("the store answered with other bytes than were written")
	errUnlisted  = errors.New("the object just written is not listed")
)

// Probe tries on store what a broker will need: write, conditional write, range
// read, list and delete, with keys under ProbePrefix that it removes again. A
// store that is unreachable, one that denies and one that can't do what it must
// fail with a *ProbeError that says what to do.
func Probe(ctx context.Context, store Store) error {
	if err := context.Cause(ctx); err != nil { // there is nothing to remove
		return failed("reach the store", err, "")
	}
	p := prober{store: store, key: ProbePrefix + rand.Text()}
	err := p.run(ctx)
	if err != nil && !errors.Is(err, syscall.ECONNREFUSED) { // which takes no deletion either, and a start waits
		// What was written goes, if it can; with a ctx of its own, as the
		// caller's may be what ended the probe.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		store.Delete(ctx, p.key)
		store.Delete(ctx, p.key+"-c")
	}
	return err
}

type prober struct {
	store Store
	key   string
}

func (p *prober) run(ctx context.Context) error {
	body := bytes.Repeat([]byte("firn probe "), 1000)
	if err := p.store.Put(ctx, p.key, bytes.NewReader(body), int64(len(body))); err != nil {
		return failed("write an object", err, "Let firn write below the prefix: s3:PutObject for a bucket, write permission for a directory")
	}
	if err := p.create(ctx, body[:11]); err != nil {
		return err
	}
	if err := p.read(ctx, body); err != nil {
		return err
	}
	if err := p.list(ctx); err != nil {
		return err
	}
	for _, k := range []string{p.key, p.key + "-c"} {
		if err := p.store.Delete(ctx, k); err != nil {
			return failed("delete an object", err, "Let firn delete below the prefix: s3:DeleteObject for a bucket, write permission for a directory")
		}
	}
	return nil
}

func (p *prober) create(ctx context.Context, value []byte) error {
	const step, do = "write an object only if it is absent",
		"Use a store that honours If-None-Match on PUT (Amazon S3 and MinIO since 2024 do)"
	if err := p.store.Create(ctx, p.key+"-c", value); err != nil {
		return failed(step, err, do)
	}
	switch err := p.store.Create(ctx, p.key+"-c", value); {
	case err == nil:
		return &ProbeError{step, errOverwrote, do + "."}
	case !errors.Is(err, ErrExists):
		return failed(step, err, do)
	}
	return nil
}

func (p *prober) read(ctx context.Context, body []byte) error {
	const off, n = 4000, 3000
	got, err := p.readBack(ctx, off, n)
	if err != nil {
		return failed("read a range of an object", err, "Let firn read below the prefix: s3:GetObject for a bucket, read permission for a directory")
	}
	if !bytes.Equal(got, body[off:off+n]) {
		return &ProbeError{"read a range of an object", errWrong,
			"Something between firn and the store (a proxy, a cache) changes replies or ignores Range: connect to the store directly."}
	}
	r, err := p.store.GetRange(ctx, p.key+"-none", 0, -1)
	if err == nil {
		r.Close()
		return &ProbeError{"read an object that does not exist", errWrong, "Check that archive.url names an object store."}
	}
	if !errors.Is(err, ErrNotFound) {
		// S3 hides what is missing from who may not list.
		return failed("read an object that does not exist", err,
			"Grant the credentials s3:ListBucket on the bucket: without it a missing object looks like a denied one")
	}
	return nil
}

// readBack reads a range of the probe's object. A store may need a moment until
// it finds what it has just accepted (D17).
func (p *prober) readBack(ctx context.Context, off, n int64) ([]byte, error) {
	for wait := 50 * time.Millisecond; ; wait *= 2 {
		r, err := p.store.GetRange(ctx, p.key, off, n)
		if err == nil {
			defer r.Close()
			return io.ReadAll(io.LimitReader(r, n+1))
		}
		if !errors.Is(err, ErrNotFound) || wait > time.Second {
			return nil, err
		}
		if err := sleep(ctx, wait); err != nil {
			return nil, err
		}
	}
}

func (p *prober) list(ctx context.Context) error {
	for wait := 50 * time.Millisecond; ; wait *= 2 {
		found := false
		err := p.store.List(ctx, p.key, func(o Object) error {
			found = found || o.Key == p.key
			return nil
		})
		if err != nil {
			return failed("list objects", err, "Let firn list below the prefix: s3:ListBucket for a bucket, read permission for a directory")
		}
		if found {
			return nil
		}
		if wait > time.Second {
			return &ProbeError{"list objects", errUnlisted, "Check that archive.url names one consistent store."}
		}
		if err := sleep(ctx, wait); err != nil {
			return failed("list objects", err, "")
		}
	}
}

// failed adds advice to err by its kind; grant is what to do about a denial, or
// about a store that answers but refuses.
func failed(step string, err error, grant string) error {
	do := "Check that the store runs and that archive.url (endpoint, bucket, region) is right."
	switch {
	case errors.Is(err, ErrDenied):
		do = grant + "; or use other credentials (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile)."
	case errors.Is(err, syscall.ENOSPC):
		do = "Free some space, or move the archive to a larger file system."
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrExists), errors.Is(err, ErrRange), errors.Is(err, errors.ErrUnsupported):
		do = grant + "."
	}
	return &ProbeError{step, err, do}
}

// sleep waits d, or for ctx to end.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
