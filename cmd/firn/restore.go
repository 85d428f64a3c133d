package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"firn/tiering"
	"firn/tiering/objstore"
)

func archiveRestore(g *global) *cobra.Command {
	var url, data string
	var force, rebuild, dry bool
	var node int32
	var cluster restoredCluster
	c := &cobra.Command{
		Use:   "restore --archive URL (--data DIR | --zookeeper HOST:PORT[,…][/CHROOT] --brokers ID,…)",
		Short: "Make a new broker or cluster of an archive alone",
		Long: `Reads an archive and writes the metadata of a new broker, or of a new cluster, that
serves it: every topic with its id, partitions and configs, every archived record.
What had not been archived yet is not in the archive. The prefix is taken over: the
brokers that owned it before, should they live, stop uploading to it and deleting
from it. DIR must be empty or missing; the new broker then starts with

  firn serve --data DIR --set archive.url=URL

With --zookeeper the metadata goes into an empty ZooKeeper, with --replicas replicas
of each partition on the brokers named. These start with empty data directories, and
lead as soon as they are there:

  firn serve --data DIR --set zookeeper.connect=… --set broker.id=1 --set archive.url=URL

It is all or nothing: no broker starts on what is half restored. A restore that was
interrupted can be begun again; with --data, with another DIR.`,
		Example: `  firn archive restore --archive 's3://events?region=eu-central-1' --data /var/lib/firn
  firn archive restore --archive s3://events --zookeeper zk1:2181,zk2:2181,zk3:2181/firn --brokers 1,2,3`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			switch inCluster := cluster.connect != ""; {
			case url == "" || data == "" && !inCluster && !dry:
				return errors.New("name the archive with --archive, and the new broker's directory with --data or the new cluster's ZooKeeper with --zookeeper")
			case inCluster && data != "":
				return errors.New("--data makes a broker that is alone, --zookeeper a cluster: give one of them")
			}
			store, err := openArchive(c.Context(), url)
			if err != nil {
				return err
			}
			o := tiering.RestoreOptions{ArchiveID: randomID(), InSpiteOfProblems: force, Rebuild: rebuild, Random: random64}
			if dry {
				plan, err := tiering.PlanRestore(c.Context(), store, o)
				if err != nil {
					return err
				}
				return printPlan(g, plan, "would be restored")
			}
			start := fmt.Sprintf("firn serve --data %s --set 'archive.url=%s'", data, url)
			var plan *tiering.RestorePlan
			if cluster.connect != "" {
				start = fmt.Sprintf("firn serve --data DIR --set zookeeper.connect=%s --set broker.id=%d --set 'archive.url=%s'", cluster.connect, slices.Concat(cluster.brokers, []int{1})[0], url)
				plan, err = cluster.restore(c.Context(), store, o, nil)
			} else {
				plan, err = restoreAlone(c.Context(), store, o, data, node)
			}
			if err != nil {
				return damaged(plan, err)
			}
			if err := printPlan(g, plan, "restored"); err != nil {
				return err
			}
			if !g.json() {
				fmt.Printf("\nstart it with:  %s\n", start)
			}
			return nil
		},
	}
	c.Flags().StringVar(&url, "archive", "", "the archive's URL")
	c.Flags().StringVar(&data, "data", "", "the new broker's data directory")
	c.Flags().Int32Var(&node, "node-id", 1, "the new broker's id")
	c.Flags().BoolVar(&force, "in-spite-of-problems", false, "restore what is there of a damaged archive")
	c.Flags().BoolVar(&rebuild, "rebuild", false, "make manifests of the indexes where a partition has none left")
	c.Flags().BoolVar(&dry, "dry-run", false, "only tell what would be restored; changes nothing")
	cluster.flags(c)
	return c
}

// restoreAlone makes a broker of an archive.
func restoreAlone(ctx context.Context, store objstore.Store, o tiering.RestoreOptions, data string, node int32) (*tiering.RestorePlan, error) {
	if err := emptyDir(data); err != nil {
		return nil, err
	}
	plan, err := tiering.Restore(ctx, store, o)
	if err != nil {
		return plan, err
	}
	return plan, writeFile(ctx, filepath.Join(data, "meta.db"), plan, node)
}

// damaged tells what is missing of an archive, where that is why err.
func damaged(plan *tiering.RestorePlan, err error) error {
	if !errors.Is(err, tiering.ErrDamaged) {
		return err
	}
	for _, p := range plan.Problems {
		fmt.Println("PROBLEM", p)
	}
	return fmt.Errorf("%w; --in-spite-of-problems restores the rest, and what is lost answers reads with an error", err)
}

func archiveRelease() *cobra.Command {
	var url string
	c := &cobra.Command{
		Use:   "release --archive URL",
		Short: "Let the sweep remove what a restore kept",
		Long: `A restore keeps objects that no manifest names: what was on its way when the old
broker ended, or branches that lost. Once you are sure that nothing is missing, this
lets the new broker's sweep remove them.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if url == "" {
				return errors.New("name the archive with --archive")
			}
			store, err := openArchive(c.Context(), url)
			if err != nil {
				return err
			}
			if err := tiering.ReleaseKept(c.Context(), store); err != nil {
				return err
			}
			fmt.Println("released: the broker's next sweep removes what nothing names")
			return nil
		},
	}
	c.Flags().StringVar(&url, "archive", "", "the archive's URL")
	return c
}

func randomID() string {
	var id [16]byte
	_, _ = rand.Read(id[:])                    // never fails
	id[0], id[6] = id[0]&0x7f, id[6]&0x0f|0x40 // no leading '-'
	return base64.RawURLEncoding.EncodeToString(id[:])
}

func random64() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.BigEndian.Uint64(b[:])
}

// emptyDir makes sure that nothing is overwritten.
func emptyDir(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("--data: %w", err)
	}
	list, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("--data: %w", err)
	}
	if len(list) > 0 {
		return fmt.Errorf("--data %s is not empty: a restore makes a new broker, name a new directory", dir)
	}
	return nil
}

// topicPlan is a topic of a plan for -o json.
type topicPlan struct {
	Topic      string `json:"topic"`
	ID         string `json:"id"`
	Partitions int    `json:"partitions"`
	Segments   int    `json:"segments"`
	Bytes      int64  `json:"bytes"`
}

func printPlan(g *global, plan *tiering.RestorePlan, verb string) error {
	var segments int
	var bytes int64
	for _, t := range plan.Topics {
		v := topicPlan{Topic: t.Info.Name, ID: t.Info.ID.String(), Partitions: len(t.Partitions)}
		for _, p := range t.Partitions {
			v.Segments, v.Bytes = v.Segments+p.Segments, v.Bytes+p.Bytes
		}
		segments, bytes = segments+v.Segments, bytes+v.Bytes
		if g.json() {
			if err := printJSON(os.Stdout, v); err != nil {
				return err
			}
		}
	}
	if g.json() {
		return nil
	}
	for _, p := range plan.Problems {
		fmt.Println("PROBLEM", p)
	}
	fmt.Printf("%d topics, %d segments, %s %s; leader epochs go on at %d\n", len(plan.Topics), segments, bytesText(bytes), verb, plan.Epoch)
	if n := len(plan.Deleted); n > 0 {
		fmt.Printf("%d deleted topics are left out\n", n)
	}
	if plan.Unnamed > 0 {
		fmt.Printf("%d objects (%s) that no manifest names are kept until `firn archive release`\n", plan.Unnamed, bytesText(plan.UnnamedBytes))
	}
	return nil
}
