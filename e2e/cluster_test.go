package e2e

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"firn/e2e/harness"
)

// admin is a kadm client of a cluster, which asks for metadata often.
func admin(t *testing.T, c *harness.Cluster, opts ...kgo.Opt) *kadm.Client {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(c.Addrs()...), kgo.MetadataMinAge(50 * time.Millisecond)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return kadm.NewClient(client)
}

func TestClusterServesTopicsOfAllBrokers(t *testing.T) {
	c := harness.StartCluster(t, harness.ClusterOptions{})
	adm := admin(t, c)
	got, err := adm.CreateTopic(t.Context(), 6, 3, nil, "t")
	if err != nil || got.Err != nil {
		t.Fatal(err, got.Err)
	}
	leads := map[int32]int{}
	harness.Eventually(t, 10*time.Second, "every broker leads two", func() bool {
		clear(leads)
		md, err := adm.Metadata(t.Context(), "t")
		if err != nil {
			return false
		}
		md.Topics.EachPartition(func(p kadm.PartitionDetail) { leads[p.Leader]++ })
		return leads[1] == 2 && leads[2] == 2 && leads[3] == 2
	})
}
