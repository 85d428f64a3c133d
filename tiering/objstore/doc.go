// Package objstore is an object store reduced to bytes by key.
package objstore
