// Package s3 keeps objects in an S3 bucket, through aws-sdk-go-v2. It implements
// objstore.Store and knows nothing of what the objects mean; it is the only
// importer of the SDK.
//
// An object of up to 64 MiB is one PUT, a larger one 16 MiB parts, four at a
// time; both read straight from the caller's ReaderAt. Over TLS the payload is
// not signed but carries its CRC32C, which the store checks; over plain HTTP it
// is signed, unless the Config says otherwise.
//
// Requests are tried three times with at most a second in between; those whose
// repetition would not mean the same (Create, Swap) are tried once. A connection
// on which nothing moves for 15 s fails.
//
// A crash leaves no object in part. It may leave parts that were never made an
// object: AbortIncomplete removes them, and so does a lifecycle rule of the
// bucket.
package s3
