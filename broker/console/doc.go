// Package console is the broker's HTTP side, on admin.listener: metrics, health
// and the state of the archive as JSON. It knows nothing of the broker but the
// few questions that Source answers, and serves only what is read: nothing here
// changes anything.
//
//	GET /metrics                     Prometheus text
//	GET /livez                       200 while the process runs its loops
//	GET /readyz                      200 when ready, else 503; a body of named checks.
//	                                 A store that is down, ZooKeeper or the archive's, is
//	                                 "degraded", not unready: the broker serves without it.
//	                                 They are asked, at most every two seconds; ?wait=5s
//	                                 asks them now, and waits longer than a moment
//	GET /healthz, /v1/status/ready   names that other tools expect for /readyz
//	GET /api/v1/archive/partitions   what is archived, what waits, and why
package console
