package objstore

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxKey is the longest key in bytes; S3's own limit, prefix included, is 1024.
// MaxElement is the longest of its elements, which are names of files and
// directories to filestore and to MinIO.
const (
	MaxKey     = 900
	MaxElement = 255
)

// CheckKey refuses keys that some store could not keep, or that would mean
// another place in a directory: empty, too long, not UTF-8, with control
// characters, or with an element that is empty, "." or "..". Every
// implementation calls it first. What it can't see, the caller keeps to: no key
// is the directory of another.
func CheckKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("objstore: empty key")
	case len(key) > MaxKey:
		return fmt.Errorf("objstore: key of %d bytes is longer than %d", len(key), MaxKey)
	case !utf8.ValidString(key):
		return fmt.Errorf("objstore: key %q is not UTF-8", key)
	case strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return fmt.Errorf("objstore: key %q has a control character", key)
	}
	for e := range strings.SplitSeq(key, "/") {
		if e == "" || e == "." || e == ".." {
			return fmt.Errorf("objstore: key %q has an empty, \".\" or \"..\" element", key)
		}
		if len(e) > MaxElement {
			return fmt.Errorf("objstore: key %q has an element of more than %d bytes", key, MaxElement)
		}
	}
	return nil
}

// checkSize refuses what no Put can mean.
func checkSize(key string, size int64) error {
	if size < 0 {
		return fmt.Errorf("objstore: put %s: negative size %d", key, size)
	}
	return nil
}
