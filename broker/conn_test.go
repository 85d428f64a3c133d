package broker

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"firn/replication"
)

func TestProduceThenFetchInEveryVersion(t *testing.T) {
	b := startBroker(t, Network{}, map[string][]replication.Log{"t": {newMemLog()}})
	c := b.dial()
	for v := int16(3); v <= 13; v++ {
		p := produced(c.call(produceReq(v, -1, "t", 0, batchOf(byte(v), 3, 100))))
		if want := int64(v-3) * 3; p.ErrorCode != 0 || p.BaseOffset != want {
			t.Fatalf("Produce v%d: code %d, base offset %d, want 0, %d", v, p.ErrorCode, p.BaseOffset, want)
		}
	}
	for v := int16(4); v <= 18; v++ {
		p := fetched(c.call(fetchReq(v, "t", 0, 0)))
		if p.ErrorCode != 0 || p.HighWatermark != 33 || len(p.RecordBatches) != 1100 {
			t.Fatalf("Fetch v%d: code %d, high watermark %d, %d bytes", v, p.ErrorCode, p.HighWatermark, len(p.RecordBatches))
		}
	}
}

func TestApiVersionsTellsTheTable(t *testing.T) {
	b := startBroker(t, Network{}, nil)
	c := b.dial()
	for v := int16(0); v <= 4; v++ {
		r := kmsg.NewPtrApiVersionsRequest()
		r.Version, r.ClientSoftwareName, r.ClientSoftwareVersion = v, "test", "1.0"
		resp := c.call(r).(*kmsg.ApiVersionsResponse)
		if resp.ErrorCode != 0 || len(resp.ApiKeys) != len(apis()) {
			t.Fatalf("v%d: code %d, %d keys", v, resp.ErrorCode, len(resp.ApiKeys))
		}
	}
}
