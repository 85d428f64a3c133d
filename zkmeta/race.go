//go:build race

package zkmeta

import "time"

// holdTime: after each connect the library's SetWatches reads the number of the
// newest answer without a lock, while answers come in. The number only says from
// where on the server is to tell of changes, and we look by ourselves after each
// connect; so it is harmless, but a race. Nothing tells when that is over if there
// is no watch to set.
const holdTime = 250 * time.Millisecond
