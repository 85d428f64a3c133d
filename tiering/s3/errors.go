package s3

import (
	"errors"
	"fmt"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

	"firn/tiering/objstore"
)

// mapped wraps what the SDK returned for an operation on key, with the sentinel
// that it means, if any.
func mapped(op, key string, err error) error {
	if err == nil {
		return nil
	}
	if m := meaning(err); m != nil {
		return fmt.Errorf("s3: %s %s: %w: %w", op, key, m, err)
	}
	return fmt.Errorf("s3: %s %s: %w", op, key, err)
}

// meaning finds S3's code and status in an error of the SDK.
func meaning(err error) error {
	var status int
	var code string
	var resp *awshttp.ResponseError
	if errors.As(err, &resp) {
		status = resp.HTTPStatusCode()
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		code = api.ErrorCode()
	}
	if status == 0 && code == "" {
		return nil // no answer
	}
	return objstore.S3Meaning(status, code)
}
