package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"firn/replication/controller"
	"firn/replication/meta"
	"firn/tiering"
	"firn/tiering/objstore"
	"firn/zkmeta"
)

// restoredCluster is the cluster that an archive is restored into.
type restoredCluster struct {
	connect  string
	src      sources // keys and TLS of ZooKeeper
	brokers  []int
	replicas int
}

func (r *restoredCluster) flags(c *cobra.Command) {
	c.Flags().StringVar(&r.connect, "zookeeper", "", "the new cluster's ZooKeeper, with a chroot where nothing is yet")
	c.Flags().IntSliceVar(&r.brokers, "brokers", nil, "ids of the new cluster's brokers")
	c.Flags().IntVar(&r.replicas, "replicas", 0, "replicas of each partition (default 3, or as many as there are brokers)")
	c.Flags().StringVar(&r.src.file, "config", "", "a broker's server.properties, for zookeeper.* keys")
	c.Flags().StringArrayVar(&r.src.set, "set", nil, "key=value, over file and environment; may be repeated")
}

// placed are the brokers and how many of them have a partition.
func (r *restoredCluster) placed() (brokers []meta.Broker, factor int, err error) {
	ids := slices.Clone(r.brokers)
	slices.Sort(ids)
	if len(ids) == 0 || ids[0] < 0 || len(slices.Compact(slices.Clone(ids))) != len(ids) {
		return nil, 0, errors.New("name the new cluster's brokers by their ids, each once: --brokers 1,2,3")
	}
	for _, id := range ids {
		brokers = append(brokers, meta.Broker{ID: int32(id)})
	}
	factor = r.replicas
	if factor == 0 {
		factor = min(3, len(ids))
	}
	if factor < 1 || factor > len(ids) {
		return nil, 0, fmt.Errorf("--replicas %d: there are %d brokers", factor, len(ids))
	}
	return brokers, factor, nil
}

// restore makes the cluster of the archive in store. after, if not nil, is called
// after each step that may be the last: what it fails with ends the restore.
func (r *restoredCluster) restore(ctx context.Context, store objstore.Store, o tiering.RestoreOptions, after func(step string) error) (plan *tiering.RestorePlan, err error) {
	brokers, factor, err := r.placed()
	if err != nil {
		return nil, err
	}
	src := r.src
	src.env = os.Environ()
	src.set = append(slices.Clone(src.set), "zookeeper.connect="+r.connect)
	s, err := load(src)
	if err != nil {
		return nil, err
	}
	cfg, err := zookeeperConfig(s.config)
	if err != nil {
		return nil, err
	}
	// What is damaged is told before anything is begun.
	if plan, err = tiering.PlanRestore(ctx, store, o); err != nil {
		return nil, err
	}
	if err := plan.Check(o); err != nil {
		return plan, err
	}
	to, err := zkmeta.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	if after == nil {
		after = func(string) error { return nil }
	}
	place := func(partitions int) [][]int32 {
		return controller.Place(brokers, 0, partitions, factor, rand.New(rand.NewPCG(random64(), random64())))
	}
	return restoreInto(ctx, store, to, o, plan.Was.ClusterID, place, after)
}

// restoreInto does it in the order that meta.Adoption draws.
func restoreInto(ctx context.Context, store objstore.Store, to meta.Store, o tiering.RestoreOptions, cluster string, place func(int) [][]int32, after func(string) error) (*tiering.RestorePlan, error) {
	a, err := meta.Adoption{ClusterID: cluster, ArchiveID: o.ArchiveID, By: meta.ByRestore}.Begin(ctx, to)
	if err != nil {
		return nil, restoredInWords(ctx, err, store, to)
	}
	if err := after("begun"); err != nil {
		return nil, restoreAgain(err)
	}
	o.ArchiveID = a.ArchiveID
	plan, err := tiering.Restore(ctx, store, o)
	if err != nil {
		return plan, restoreAgain(err)
	}
	if err := after("taken"); err != nil {
		return plan, restoreAgain(err)
	}
	if err := (planWriter{store: to, plan: plan, place: place, fence: a.Fenced}).write(ctx); err != nil {
		return plan, restoreAgain(err)
	}
	if err := after("written"); err != nil {
		return plan, restoreAgain(err)
	}
	if err := a.End(ctx, to); err != nil && !restored(ctx, to, plan.Now) {
		return plan, restoreAgain(err)
	}
	return plan, nil
}

func restoreAgain(err error) error {
	return fmt.Errorf("%w; nothing is lost, and no broker starts on what is half restored: run firn archive restore again", err)
}

// restored: the store is that of the archive's owner, and open to brokers.
func restored(ctx context.Context, to meta.Store, owner tiering.Identity) bool {
	id, err := meta.LoadClusterID(ctx, to)
	if err != nil || id != owner.ClusterID || meta.CheckAdopted(ctx, to) != nil {
		return false
	}
	archive, err := meta.LoadArchiveID(ctx, to)
	return err == nil && archive == owner.ArchiveID
}

// restoredInWords says what stands in the way of a beginning.
func restoredInWords(ctx context.Context, err error, store objstore.Store, to meta.Store) error {
	if !errors.Is(err, meta.ErrOccupied) {
		return err
	}
	if owner, lerr := tiering.LoadIdentity(ctx, store); lerr == nil && restored(ctx, to, owner) {
		return fmt.Errorf("%w: the one that this archive belongs to; there is nothing to do but to start its brokers", err)
	}
	return fmt.Errorf("%w; nothing was changed. Name an empty chroot: --zookeeper HOST:PORT/ANOTHER", err)
}
