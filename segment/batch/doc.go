// Package batch reads Kafka's record batches (format v2) in place and makes new ones.
package batch
