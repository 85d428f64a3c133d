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

	"github.com/spf13/cobra"

	"firn/replication/meta"
	"firn/tiering"
	"firn/zkmeta/solo"
)

func archiveRestore(g *global) *cobra.Command {
	var url, data string
	var force, rebuild, dry bool
	var node int32
	c := &cobra.Command{
		Use:   "restore --archive URL --data DIR",
		Short: "Make a new broker of an archive alone",
		Long: `Reads an archive and writes the metadata of a new broker that serves it: every topic
with its id, partitions and configs, every archived record. What had not been
archived yet is not in the archive. The prefix is taken over: the broker that owned
it before, should it live, stops uploading to it and deleting from it. The new
broker then starts with

  firn serve --data DIR --set archive.url=URL

DIR must be empty or missing. A restore that was interrupted can be begun again,
with another DIR.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if url == "" || data == "" && !dry {
				return errors.New("name the archive with --archive and the new broker's directory with --data")
			}
			store, err := openStore(c.Context(), url, false)
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
			if err := emptyDir(data); err != nil {
				return err
			}
			plan, err := tiering.Restore(c.Context(), store, o)
			if err != nil {
				if errors.Is(err, tiering.ErrDamaged) {
					for _, p := range plan.Problems {
						fmt.Println("PROBLEM", p)
					}
					return fmt.Errorf("%w; --in-spite-of-problems restores the rest, and what is lost answers reads with an error", err)
				}
				return err
			}
			if err := writeMetadata(c.Context(), filepath.Join(data, "meta.db"), plan, node); err != nil {
				return err
			}
			if err := printPlan(g, plan, "restored"); err != nil {
				return err
			}
			if !g.json() {
				fmt.Printf("\nstart it with:  firn serve --data %s --set 'archive.url=%s'\n", data, url)
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
	return c
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
			store, err := openStore(c.Context(), url, false)
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

// writeMetadata writes what the plan says to a new metadata file. The state of
// every partition is "leader none" above every epoch of the old cluster: the
// broker's start elects it, and T8 begins each log at its archived end.
func writeMetadata(ctx context.Context, path string, plan *tiering.RestorePlan, node int32) (err error) {
	store, err := solo.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := meta.Init(ctx, store); err != nil {
		return err
	}
	if _, err := meta.MakeClusterID(ctx, store, plan.Now.ClusterID); err != nil {
		return err
	}
	if _, err := meta.MakeArchiveID(ctx, store, plan.Now.ArchiveID); err != nil {
		return err
	}
	if err := meta.ReserveProducerIDs(plan.ProducerID).Commit(ctx, store); err != nil {
		return err
	}
	for _, t := range plan.Topics {
		if err := writeTopic(ctx, store, t, plan.Epoch, node); err != nil {
			return fmt.Errorf("topic %s: %w", t.Info.Name, err)
		}
	}
	return nil
}

func writeTopic(ctx context.Context, store meta.Store, t tiering.RestoreTopic, epoch, node int32) error {
	topic := meta.Topic{Name: t.Info.Name, ID: meta.TopicID(t.Info.ID)}
	for range t.Partitions {
		topic.Replicas = append(topic.Replicas, []int32{node})
	}
	if err := meta.CreateTopic(topic, t.Info.Configs).Commit(ctx, store); err != nil {
		return err
	}
	var writes []meta.Write
	for i, p := range t.Partitions {
		w, err := meta.ChangeState(meta.StateChange{Topic: topic.Name, ID: topic.ID, Partition: int32(i), State: meta.PartitionState{
			Leader: meta.NoLeader, LeaderEpoch: epoch, ISR: []meta.Member{{ID: node}}, Version: meta.Missing,
		}})
		if err != nil {
			return err
		}
		if p.Pointer.ManifestKey != "" {
			w.Ops = append(w.Ops, meta.Op{Kind: meta.Create, Path: meta.PointerPath(topic.ID, int32(i)), Value: meta.EncodePointer(metaPointer(p.Pointer))})
		}
		writes = append(writes, w)
	}
	return errors.Join(meta.CommitAll(ctx, store, writes)...)
}

func metaPointer(p tiering.Pointer) meta.Pointer {
	return meta.Pointer{
		ManifestKey: p.ManifestKey, ManifestSize: p.ManifestSize, ManifestCRC: p.ManifestCRC,
		Sequence: p.Sequence, LastEpoch: p.LastEpoch, LogStart: p.LogStart, ArchivedEnd: p.ArchivedEnd,
	}
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
