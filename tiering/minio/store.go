package minio

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"firn/tiering/objstore"
)

// Config says where objects are kept. Bucket and Endpoint are required.
type Config struct {
	Bucket string
	// Prefix is put before every key, with a slash.
	Prefix string
	// Region of the bucket; empty means us-east-1, which is MinIO's own default.
	Region string
	// Endpoint is the base URL of the store.
	Endpoint string
	// PathStyle puts the bucket in the path, not in the host name.
	PathStyle bool
	// AccessKey, SecretKey and SessionToken are credentials. Empty: from the
	// usual chain (AWS_* in the environment, profile, instance role).
	AccessKey, SecretKey, SessionToken string
	// UnsignedPayload trusts the CRC32C over plain HTTP too. It saves 1.2 s of
	// CPU per GB, and lets whoever sits on the wire change objects on the way.
	UnsignedPayload bool
}

// Store is a prefix of a bucket.
type Store struct {
	client minio.Core
	// single is the same client, but without repetitions.
	single   minio.Core
	bucket   string
	prefix   string // "" or with a slash at its end
	region   string
	unsigned bool
	// credentials keeps those in use.
	credentials *credentials.Credentials
}

var (
	_ objstore.Store    = (*Store)(nil)
	_ objstore.Swapper  = (*Store)(nil)
	_ objstore.Aborter  = (*Store)(nil)
	_ objstore.Foldered = (*Store)(nil)
)

// New makes a client. It sends nothing yet.
func New(c Config) (*Store, error) {
	if c.Bucket == "" {
		return nil, errors.New("minio: no bucket")
	}
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.Trim(u.Path, "/") != "" {
		return nil, fmt.Errorf("minio: endpoint %q is not http://host:port or https://host:port", c.Endpoint)
	}
	if c.Region == "" {
		c.Region = "us-east-1"
	}
	o := &minio.Options{
		Creds:        creds(c),
		Secure:       u.Scheme == "https",
		Transport:    objstore.NewTransport(),
		Region:       c.Region, // else every client first asks for it
		BucketLookup: minio.BucketLookupDNS,
		MaxRetries:   objstore.Attempts,
	}
	if c.PathStyle {
		o.BucketLookup = minio.BucketLookupPath
	}
	s := &Store{bucket: c.Bucket, region: c.Region, unsigned: o.Secure || c.UnsignedPayload, credentials: o.Creds}
	if p := strings.Trim(c.Prefix, "/"); p != "" {
		s.prefix = p + "/"
	}
	many, err := minio.NewCore(u.Host, o)
	if err != nil {
		return nil, fmt.Errorf("minio: %w", err)
	}
	o.MaxRetries = 1
	one, err := minio.NewCore(u.Host, o)
	if err != nil {
		return nil, fmt.Errorf("minio: %w", err)
	}
	s.client, s.single = *many, *one
	return s, nil
}

// creds is the usual chain, unless the Config has credentials.
func creds(c Config) *credentials.Credentials {
	if c.AccessKey != "" {
		return credentials.NewStaticV4(c.AccessKey, c.SecretKey, c.SessionToken)
	}
	return credentials.NewChainCredentials([]credentials.Provider{
		&credentials.EnvAWS{},
		&credentials.FileAWSCredentials{},
		&credentials.IAM{Client: &http.Client{Transport: objstore.NewTransport()}},
	})
}

// EnsureBucket checks that the bucket is there and may be used, and makes it if
// create says so; objstore.ErrNoBucket if it is missing.
func (s *Store) EnsureBucket(ctx context.Context, create bool) error {
	ok, err := s.client.BucketExists(ctx, s.bucket)
	if err != nil {
		return s.mapped("bucket", s.bucket, err)
	}
	if ok {
		return nil
	}
	if !create {
		return fmt.Errorf("minio: %s: %w", s.bucket, objstore.ErrNoBucket)
	}
	err = s.client.MakeBucket(ctx, s.bucket, minio.MakeBucketOptions{Region: s.region})
	if minio.ToErrorResponse(err).Code == "BucketAlreadyOwnedByYou" {
		return nil // somebody was faster
	}
	return s.mapped("create bucket", s.bucket, err)
}

// mapped wraps what minio-go returned for an operation on key, with the
// sentinel that it means, if any. Credentials that the store did not take are
// read anew for the next request: they may have been rotated (D19).
func (s *Store) mapped(op, key string, err error) error {
	if err == nil {
		return nil
	}
	var r minio.ErrorResponse
	if errors.As(err, &r) {
		if r.StatusCode == 401 || r.StatusCode == 403 || r.Code == "ExpiredToken" {
			s.credentials.Expire()
		}
		if m := objstore.S3Meaning(r.StatusCode, r.Code); m != nil {
			return fmt.Errorf("minio: %s %s: %w: %w", op, key, m, err)
		}
	}
	return fmt.Errorf("minio: %s %s: %w", op, key, err)
}
