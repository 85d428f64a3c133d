package s3

import (
	"errors"
	"fmt"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

	"firn/tiering/objstore"
)

// mapped wraps what the SDK returned for an operation on key, with the sentinel
// that it means, if any. Credentials that the store did not take are read anew
// for the next request: they may have been rotated (D19).
func (s *Store) mapped(op, key string, err error) error {
	if err == nil {
		return nil
	}
	status, code := answer(err)
	if status == 401 || status == 403 || code == "ExpiredToken" {
		s.credentials.Invalidate()
		s.signer.forget()
	}
	if status == 0 && code == "" {
		return fmt.Errorf("s3: %s %s: %w", op, key, err) // no answer
	}
	if m := objstore.S3Meaning(status, code); m != nil {
		return fmt.Errorf("s3: %s %s: %w: %w", op, key, m, err)
	}
	return fmt.Errorf("s3: %s %s: %w", op, key, err)
}

// answer finds S3's status and code in an error of the SDK.
func answer(err error) (status int, code string) {
	var resp *awshttp.ResponseError
	if errors.As(err, &resp) {
		status = resp.HTTPStatusCode()
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		code = api.ErrorCode()
	}
	return status, code
}
