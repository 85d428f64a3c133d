package e2e

import (
	"testing"

	"firn/e2e/storefault"
)

// startFaultProxy starts a healthy proxy in front of endpoint, until the test ends.
func startFaultProxy(t testing.TB, endpoint string) *storefault.Proxy {
	t.Helper()
	p, err := storefault.Start(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}
