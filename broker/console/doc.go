// Package console is the broker's HTTP side, on admin.listener: metrics, health
// and the state of the archive as JSON. It knows nothing of the broker but the
// few questions that Source answers, and serves only what is read: nothing here
// changes anything.
//
//	GET /metrics                     Prometheus text
//	GET /livez                       200 while the process runs its loops
//	GET /readyz                      200 when ready, else 503; a body of named checks.
//	                                 A store that is down is "degraded", not unready
//	GET /healthz, /v1/status/ready   names that other tools expect for /readyz
//	GET /api/v1/archive/partitions   what is archived, what waits, and why
package console
