package tiering

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"firn/tiering/filestore"
	"firn/tiering/minio"
	"firn/tiering/objstore"
	"firn/tiering/s3"
)

// OpenOptions goes with the URL of an archive.
type OpenOptions struct {
	// Create makes a missing directory or bucket, as create=true in the URL does.
	Create bool
	// Existing is for who needs what is there already: nothing is made, whatever
	// the URL says, and no error suggests it.
	Existing bool
	// MinFree is how many bytes of a directory's file system stay free; see
	// filestore.Config.
	MinFree int64
	// AllowUnreachable gives a Store even if the bucket can't be reached now:
	// a broker that is known to use it starts degraded. What is wrong with the
	// URL, the bucket or the credentials stays an error.
	AllowUnreachable bool
}

// OpenStore opens the store that rawURL names. What an operator can put right
// is an error in words.
func OpenStore(ctx context.Context, rawURL string, o OpenOptions) (objstore.Store, error) {
	l, err := ParseLocation(rawURL)
	if err != nil {
		return nil, err
	}
	l.Create = (l.Create || o.Create) && !o.Existing
	advice := ": make it, or add create=true to the URL"
	if o.Existing {
		advice = ", so there is no archive in it: is the URL right?"
	}
	if l.Dir != "" {
		s, err := filestore.Open(filestore.Config{Dir: l.Dir, Create: l.Create, MinFree: o.MinFree})
		if errors.Is(err, filestore.ErrNoDir) {
			return nil, fmt.Errorf("archive.url: the directory %s does not exist%s", l.Dir, advice)
		}
		if err != nil {
			return nil, fmt.Errorf("archive.url: %w", err)
		}
		return s, nil
	}
	s, err := l.client(ctx)
	if err != nil {
		return nil, fmt.Errorf("archive.url: %w", err)
	}
	switch err := s.EnsureBucket(ctx, l.Create); {
	case err == nil:
		return s, nil
	case errors.Is(err, objstore.ErrNoBucket):
		return nil, fmt.Errorf("archive.url: the bucket %s does not exist%s", l.Bucket, advice)
	case errors.Is(err, objstore.ErrBucketName):
		return nil, fmt.Errorf("archive.url: %s refuses the bucket's name %s, or it is another's: choose another: %w", l.where(), l.Bucket, err)
	case errors.Is(err, objstore.ErrDenied):
		return nil, fmt.Errorf("archive.url: the credentials may not use the bucket %s (s3:ListBucket on it; AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or a profile): %w", l.Bucket, err)
	case o.AllowUnreachable:
		return s, nil
	default:
		return nil, fmt.Errorf("archive.url: can't reach the bucket %s at %s (endpoint, region and credentials right?): %w", l.Bucket, l.where(), cmp.Or(context.Cause(ctx), err))
	}
}

// bucketStore is a store that lives in a bucket.
type bucketStore interface {
	objstore.Store
	EnsureBucket(ctx context.Context, create bool) error
}

func (l *Location) client(ctx context.Context) (bucketStore, error) {
	if l.Client == "minio" {
		endpoint := l.Endpoint
		if endpoint == "" {
			endpoint = "https://s3.amazonaws.com"
		}
		return minio.New(minio.Config{
			Bucket: l.Bucket, Prefix: l.Prefix, Region: l.Region, Endpoint: endpoint,
			PathStyle: l.PathStyle, UnsignedPayload: l.UnsignedPayload,
		})
	}
	return s3.New(ctx, s3.Config{
		Bucket: l.Bucket, Prefix: l.Prefix, Region: l.Region, Endpoint: l.Endpoint,
		PathStyle: l.PathStyle, UnsignedPayload: l.UnsignedPayload,
	})
}

func (l *Location) where() string {
	if l.Endpoint != "" {
		return l.Endpoint
	}
	return "Amazon S3"
}
