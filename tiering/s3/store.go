package s3

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"firn/tiering/objstore"
)

// Config says where objects are kept. Only Bucket is required.
type Config struct {
	Bucket string
	// Prefix is put before every key, with a slash.
	Prefix string
	// Region of the bucket. Empty: from the environment or profile, else
	// us-east-1 for a custom endpoint.
	Region string
	// Endpoint is the base URL of a store other than Amazon's.
	Endpoint string
	// PathStyle puts the bucket in the path, not in the host name.
	PathStyle bool
	// AccessKey, SecretKey and SessionToken are credentials. Empty: from the
	// usual chain (environment, profile, instance or container role).
	AccessKey, SecretKey, SessionToken string
	// UnsignedPayload trusts the CRC32C over plain HTTP too. It saves 1.2 s of
	// CPU per GB, and lets whoever sits on the wire change objects on the way.
	UnsignedPayload bool
}

// Store is a prefix of a bucket.
type Store struct {
	client   *s3.Client
	bucket   string
	prefix   string // "" or with a slash at its end
	region   string
	unsigned bool
	// credentials keeps those in use.
	credentials *aws.CredentialsCache
	signer      *signer
}

var (
	_ objstore.Store    = (*Store)(nil)
	_ objstore.Swapper  = (*Store)(nil)
	_ objstore.Aborter  = (*Store)(nil)
	_ objstore.Foldered = (*Store)(nil)
)

// New makes a client. It sends nothing to the store yet, though finding
// credentials may ask the machine's metadata service.
func New(ctx context.Context, c Config) (*Store, error) {
	if c.Bucket == "" {
		return nil, errors.New("s3: no bucket")
	}
	load := []func(*config.LoadOptions) error{
		config.WithHTTPClient(awshttp.NewBuildableClient().WithTransportOptions(objstore.Tune)),
		config.WithRequestChecksumCalculation(aws.RequestChecksumCalculationWhenRequired),
		config.WithResponseChecksumValidation(aws.ResponseChecksumValidationWhenRequired),
		config.WithRetryer(func() aws.Retryer {
			return retry.NewStandard(func(o *retry.StandardOptions) {
				o.MaxAttempts, o.MaxBackoff = objstore.Attempts, objstore.MaxBackoff
			})
		}),
	}
	if c.Region != "" {
		load = append(load, config.WithRegion(c.Region))
	}
	cfg, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		return nil, fmt.Errorf("s3: %w", err)
	}
	tls := true
	if c.Endpoint != "" {
		u, err := url.Parse(c.Endpoint)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, fmt.Errorf("s3: endpoint %q is not http://host:port or https://host:port", c.Endpoint)
		}
		tls = u.Scheme == "https"
	}
	if cfg.Region == "" {
		if c.Endpoint == "" {
			return nil, errors.New("s3: the region of the bucket is not known: add region= to the URL, or set AWS_REGION")
		}
		cfg.Region = "us-east-1"
	}
	s := &Store{bucket: c.Bucket, region: cfg.Region, unsigned: tls || c.UnsignedPayload, signer: newSigner()}
	s.credentials = aws.NewCredentialsCache(aws.CredentialsProviderFunc(func(ctx context.Context) (aws.Credentials, error) {
		if c.AccessKey != "" {
			return aws.Credentials{AccessKeyID: c.AccessKey, SecretAccessKey: c.SecretKey, SessionToken: c.SessionToken}, nil
		}
		// The SDK reads environment and files once; after a rotation they say something else.
		now, err := config.LoadDefaultConfig(ctx, load...)
		if err != nil {
			return aws.Credentials{}, err
		}
		return now.Credentials.Retrieve(ctx)
	}))
	cfg.Credentials = s.credentials
	if p := strings.Trim(c.Prefix, "/"); p != "" {
		s.prefix = p + "/"
	}
	s.client = s3.NewFromConfig(cfg, func(o *s3.Options) {
		if c.Endpoint != "" {
			o.BaseEndpoint = &c.Endpoint
		}
		o.UsePathStyle = c.PathStyle
		o.HTTPSignerV4 = s.signer
		o.DisableLogOutputChecksumValidationSkipped = true
	})
	return s, nil
}

// EnsureBucket checks that the bucket is there and may be used, and makes it if
// create says so; objstore.ErrNoBucket if it is missing.
func (s *Store) EnsureBucket(ctx context.Context, create bool) error {
	_, err := s.client.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: &s.bucket})
	err = s.mapped("bucket", s.bucket, err)
	if err == nil || !errors.Is(err, objstore.ErrNotFound) && !errors.Is(err, objstore.ErrNoBucket) {
		return err
	}
	if !create {
		return fmt.Errorf("s3: %s: %w", s.bucket, objstore.ErrNoBucket)
	}
	in := &s3.CreateBucketInput{Bucket: &s.bucket}
	if s.region != "us-east-1" { // which must not be named
		in.CreateBucketConfiguration = &types.CreateBucketConfiguration{LocationConstraint: types.BucketLocationConstraint(s.region)}
	}
	_, err = s.client.CreateBucket(ctx, in)
	var owned *types.BucketAlreadyOwnedByYou
	if errors.As(err, &owned) {
		return nil // somebody was faster
	}
	return s.mapped("create bucket", s.bucket, err)
}

// once is for requests that must not be repeated.
func once(o *s3.Options) { o.RetryMaxAttempts = 1 }
