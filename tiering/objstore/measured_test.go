package objstore

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestMeasuredCountsRequestsAndBytes(t *testing.T) {
	reg := prometheus.NewRegistry()
	f := Inject(NewMem(), nil)
	s, other := Measured(f, reg), Measured(NewMem(), reg) // both count into one set
	putString(t.Context(), s, "k", "0123456789")
	putString(t.Context(), other, "k", "01234")
	ReadAll(t.Context(), s, "k", 100)
	ReadAll(t.Context(), s, "none", 100)
	s.Create(t.Context(), "k", nil)
	f.Set(faultOn(OpDelete, Fault{Before: errDown}))
	s.Delete(t.Context(), "k")
	want := `
# HELP firn_objstore_bytes_total Bytes of objects read from and written to the object store.
# TYPE firn_objstore_bytes_total counter
firn_objstore_bytes_total{dir="read"} 10
firn_objstore_bytes_total{dir="written"} 15
# HELP firn_objstore_requests_total Requests to the object store by operation and result.
# TYPE firn_objstore_requests_total counter
firn_objstore_requests_total{op="create",result="exists"} 1
firn_objstore_requests_total{op="delete",result="error"} 1
firn_objstore_requests_total{op="get",result="not_found"} 1
firn_objstore_requests_total{op="get",result="ok"} 1
firn_objstore_requests_total{op="put",result="ok"} 2
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "firn_objstore_bytes_total", "firn_objstore_requests_total"); err != nil {
		t.Error(err)
	}
}
