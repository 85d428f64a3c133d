package meta

import (
	"encoding/json"
	"errors"
	"fmt"
)

// ErrFormat: a node's value isn't what it should be.
var ErrFormat = errors.New("meta: malformed value")

// encode is the JSON of a value of ours, which always has one.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("meta: encoding %T: %v", v, err))
	}
	return b
}

// decode reads JSON of at most MaxBytes into v. Fields that we don't know are
// left alone: later versions, and Kafka's own tools, may write more.
func decode(what string, b []byte, v any) error {
	if len(b) > MaxBytes {
		return fmt.Errorf("meta: %s of %d bytes: %w", what, len(b), ErrFormat)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("meta: %s: %w: %w", what, ErrFormat, err)
	}
	return nil
}

// malformed is ErrFormat with what is wrong.
func malformed(what, format string, args ...any) error {
	return fmt.Errorf("meta: %s: %w: "+format, append([]any{what, ErrFormat}, args...)...)
}
