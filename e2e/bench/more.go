package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ranges reads -bytes in ranges of -batch bytes, -clients at a time, from an
// object of 256 MiB that it puts first.
func ranges(ctx context.Context, m *meter, r map[string]any) error {
	cl, err := minio.New(strings.TrimPrefix(o.store, "http://"), &minio.Options{
		Creds: credentials.NewStaticV4(os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY"), "")})
	if err != nil {
		return err
	}
	if ok, err := cl.BucketExists(ctx, o.bucket); err != nil {
		return err
	} else if !ok {
		if err := cl.MakeBucket(ctx, o.bucket, minio.MakeBucketOptions{}); err != nil {
			return err
		}
	}
	const size = 256 << 20
	key := "ranges"
	if st, err := cl.StatObject(ctx, o.bucket, key, minio.StatObjectOptions{}); err != nil || st.Size != size {
		if _, err := cl.PutObject(ctx, o.bucket, key, io.LimitReader(zeros{}, size), size, minio.PutObjectOptions{DisableMultipart: true}); err != nil {
			return err
		}
	}
	var next, got atomic.Int64
	errs := make(chan error, o.clients)
	m.start()
	for range o.clients {
		go func() {
			buf := make([]byte, 1<<20)
			for {
				at := next.Add(int64(o.batch)) - int64(o.batch)
				if at >= o.bytes || ctx.Err() != nil {
					errs <- ctx.Err()
					return
				}
				opt := minio.GetObjectOptions{}
				from := at % size
				if err := opt.SetRange(from, min(from+int64(o.batch), size)-1); err != nil {
					errs <- err
					return
				}
				body, _, _, err := (&minio.Core{Client: cl}).GetObject(ctx, o.bucket, key, opt)
				if err != nil {
					errs <- err
					return
				}
				n, err := io.CopyBuffer(writeOnly{}, body, buf)
				body.Close()
				got.Add(n)
				if err != nil {
					errs <- err
					return
				}
			}
		}()
	}
	for range o.clients {
		if e := <-errs; e != nil {
			err = e
		}
	}
	m.stop(r, got.Load()/int64(o.batch), got.Load())
	return err
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// writeOnly hides io.Discard's own ReadFrom, so that the buffer is ours.
type writeOnly struct{}

func (writeOnly) Write(p []byte) (int, error) { return len(p), nil }

// idle holds -clients connections to a topic of -partitions for -max-seconds.
func idle(ctx context.Context, m *meter, r map[string]any) error {
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	for range o.clients {
		c, err := net.Dial("tcp", seeds()[0])
		if err != nil {
			return err
		}
		conns = append(conns, c)
	}
	m.start()
	select {
	case <-ctx.Done():
	case <-time.After(time.Duration(o.maxSeconds * float64(time.Second))):
	}
	m.stop(r, 1, 1)
	return ctx.Err()
}

// firstAck asks for -max-seconds until one record is acknowledged, and says how
// long that took.
func firstAck(ctx context.Context, m *meter, r map[string]any) error {
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, time.Duration(o.maxSeconds*float64(time.Second)))
	defer cancel()
	for {
		c, err := net.DialTimeout("tcp", seeds()[0], 100*time.Millisecond)
		if err == nil {
			c.Close()
			break
		}
		if ctx.Err() != nil {
			return fmt.Errorf("nobody listens: %w", err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	m.start()
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds()...), kgo.DefaultProduceTopic(o.topic), kgo.RequiredAcks(acksOpt()), kgo.DisableIdempotentWrite(),
		kgo.ProducerLinger(0), kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }), kgo.UnknownTopicRetries(-1), kgo.MetadataMinAge(20*time.Millisecond))
	if err != nil {
		return err
	}
	defer cl.Close()
	err = cl.ProduceSync(ctx, kgo.StringRecord("first")).FirstErr()
	r["first_ack_s"] = round(time.Since(start).Seconds(), 3)
	m.stop(r, 1, 1)
	return err
}
