package s3

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// signer is the SDK's, but can forget: the SDK's keeps the key that it derives
// from a secret by access key and day, and would go on signing with an old
// secret where only that was rotated, as MinIO lets one do.
type signer struct {
	now atomic.Pointer[v4.Signer]
}

func newSigner() *signer {
	s := &signer{}
	s.forget()
	return s
}

func (s *signer) forget() { s.now.Store(v4.NewSigner()) }

func (s *signer) SignHTTP(ctx context.Context, c aws.Credentials, r *http.Request, payloadHash, service, region string, at time.Time, opts ...func(*v4.SignerOptions)) error {
	return s.now.Load().SignHTTP(ctx, c, r, payloadHash, service, region, at, opts...)
}
