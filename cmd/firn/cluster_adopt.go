package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"firn/replication/meta"
	"firn/tiering"
	"firn/tiering/objstore"
	"firn/zkmeta"
	"firn/zkmeta/solo"
)

func clusterAdopt(g *global) *cobra.Command {
	var src sources
	var connect string
	c := &cobra.Command{
		Use:   "adopt --zookeeper HOST:PORT[,…][/CHROOT] --data DIR",
		Short: "Move a single broker's metadata into an empty ZooKeeper",
		Long: `Copies the metadata of a broker that was alone, and is stopped, into a ZooKeeper
where nothing is yet: cluster id, topics with their ids, configs and states, archive
pointers, producer ids. The broker then starts with zookeeper.connect, on the same
data directory under the same id, and others can join it.

It is all or nothing: no broker starts on what is half copied, and an adoption that
was interrupted is finished by running it again. The archive is taken over: it gets
a new archive id, and a broker that still runs on the old metadata stops writing to
it. meta.db stays where it is, marked as moved, and no broker starts on it again.

Name the archive, keys and TLS as for firn serve: by --config, --set and KAFKA_*.`,
		Example: `  firn cluster adopt --zookeeper zk1:2181,zk2:2181,zk3:2181/firn --data /var/lib/firn --set archive.url=s3://events`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if connect == "" || src.data == "" && src.file == "" {
				return errors.New("name the ZooKeeper with --zookeeper, and the stopped broker with --data (or --config)")
			}
			src.env = os.Environ()
			src.set = append(src.set, "zookeeper.connect="+connect)
			s, err := load(src)
			if err != nil {
				return err
			}
			done, err := adopt(c.Context(), s, nil)
			if err != nil {
				return err
			}
			if g.json() {
				return printJSON(os.Stdout, done)
			}
			done.print(os.Stdout, s, connect)
			return nil
		},
	}
	c.Flags().StringVar(&connect, "zookeeper", "", "the ZooKeeper, with a chroot for this cluster")
	c.Flags().StringVar(&src.data, "data", "", "the stopped broker's data directory")
	c.Flags().StringVar(&src.file, "config", "", "the stopped broker's server.properties")
	c.Flags().StringArrayVar(&src.set, "set", nil, "key=value, over file and environment; may be repeated")
	return c
}

// adopted is what was moved.
type adopted struct {
	ClusterID string  `json:"cluster_id"`
	ArchiveID string  `json:"archive_id,omitempty"`
	Nodes     int     `json:"nodes"`
	Brokers   []int32 `json:"brokers"`
	Topics    int     `json:"topics"`
}

func (a adopted) print(w io.Writer, s *settings, connect string) {
	fmt.Fprintf(w, "cluster %s: %d topics, %d nodes moved to ZooKeeper %s\n", a.ClusterID, a.Topics, a.Nodes, connect)
	id := int32(1)
	if len(a.Brokers) > 0 {
		id = a.Brokers[0]
	}
	fmt.Fprintf(w, "\nstart it with:  firn serve --data %s --set zookeeper.connect=%s --set broker.id=%d", s.data, connect, id)
	if a.ArchiveID != "" && !s.archiveIsDefault {
		fmt.Fprintf(w, " --set 'archive.url=%s'", s.archive)
	}
	fmt.Fprintln(w)
	if a.ArchiveID != "" && s.archiveIsDefault {
		fmt.Fprintln(w, "the archive is a directory of this machine: brokers on others need it at the same path, or copy it to a bucket with firn archive copy")
	}
}

// adopt moves the metadata of a stopped broker into ZooKeeper. after, if not nil, is
// called after each step that may be the last: what it fails with ends the adoption.
func adopt(ctx context.Context, s *settings, after func(step string) error) (done adopted, err error) {
	if _, err := os.Stat(s.meta); errors.Is(err, fs.ErrNotExist) {
		return done, fmt.Errorf("%s has no meta.db: --data is the directory of a broker that ran without ZooKeeper", s.data)
	}
	from, err := solo.OpenMoved(s.meta)
	if errors.Is(err, solo.ErrInUse) {
		return done, fmt.Errorf("%w: stop the broker first", err)
	}
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	cfg, err := zookeeperConfig(s.config)
	if err != nil {
		return done, err
	}
	to, err := zkmeta.Open(ctx, cfg)
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, to.Close()) }()

	archive, was, err := adoptedArchive(ctx, s, from)
	if err != nil {
		return done, err
	}
	if archive != nil {
		if c, ok := archive.(io.Closer); ok {
			defer func() { err = errors.Join(err, c.Close()) }()
		}
	}
	if after == nil {
		after = func(string) error { return nil }
	}
	return adoptInto(ctx, s, from, to, archive, was, after)
}

// adoptedArchive is the archive that belongs to the metadata, and whose it is; nil
// if it has none.
func adoptedArchive(ctx context.Context, s *settings, from meta.Store) (objstore.Store, tiering.Identity, error) {
	var was tiering.Identity
	var err error
	if was.ClusterID, err = meta.LoadClusterID(ctx, from); err != nil {
		return nil, was, fmt.Errorf("%s: no cluster lives there: %w", s.meta, err)
	}
	was.ArchiveID, err = meta.LoadArchiveID(ctx, from)
	switch {
	case errors.Is(err, meta.ErrNotFound):
		return nil, was, nil
	case err != nil:
		return nil, was, err
	case s.archive == "":
		return nil, was, errors.New("this broker has an archive, which moves with it: name it with --set archive.url=URL")
	}
	store, err := openArchive(ctx, s.archive)
	return store, was, err
}

// adoptInto does it in the order that meta.Adoption draws.
func adoptInto(ctx context.Context, s *settings, from *solo.Store, to *zkmeta.Store, archive objstore.Store, was tiering.Identity, after func(string) error) (done adopted, err error) {
	a := meta.Adoption{ClusterID: was.ClusterID}
	if archive != nil {
		a.ArchiveID = randomID()
	}
	if a, err = a.Begin(ctx, to); err != nil {
		return done, inWords(ctx, err, to, was.ClusterID)
	}
	if done.Nodes, err = a.Copy(ctx, from, to); err != nil {
		return done, again(err)
	}
	if err := after("copied"); err != nil {
		return done, again(err)
	}
	if archive != nil {
		if err := takeOver(ctx, archive, was, a); err != nil {
			return done, again(err)
		}
	}
	if err := after("taken"); err != nil {
		return done, again(err)
	}
	if err := from.MarkMoved("ZooKeeper " + s.zookeeper); err != nil {
		return done, again(err)
	}
	if err := after("marked"); err != nil {
		return done, again(err)
	}
	if err := a.End(ctx, to); err != nil && !finished(ctx, to, was.ClusterID) {
		return done, again(err)
	}
	done.ClusterID, done.ArchiveID = a.ClusterID, a.ArchiveID
	img, _, err := meta.Begin(ctx, to)
	if err != nil {
		return done, err
	}
	done.Topics = len(img.Topics)
	for id := range img.Registrations {
		done.Brokers = append(done.Brokers, id)
	}
	return done, nil
}

func again(err error) error {
	return fmt.Errorf("%w; nothing is lost, and no broker starts on what is half moved: run firn cluster adopt again", err)
}

// finished: the adoption is at its end, however that came about (Z3).
func finished(ctx context.Context, to meta.Store, cluster string) bool {
	id, err := meta.LoadClusterID(ctx, to)
	return err == nil && id == cluster && meta.CheckAdopted(ctx, to) == nil
}

// inWords says what stands in the way of a beginning.
func inWords(ctx context.Context, err error, to meta.Store, cluster string) error {
	switch {
	case !errors.Is(err, meta.ErrOccupied):
		return err
	case finished(ctx, to, cluster):
		return fmt.Errorf("%w: this broker's own; it was adopted before, and there is nothing to do", err)
	}
	return fmt.Errorf("%w; nothing was changed. Name an empty chroot: --zookeeper HOST:PORT/ANOTHER", err)
}

// takeOver gives the archive its new id, if it hasn't got it by an earlier try.
func takeOver(ctx context.Context, archive objstore.Store, was tiering.Identity, a meta.Adoption) error {
	now := tiering.Identity{ClusterID: a.ClusterID, ArchiveID: a.ArchiveID}
	have, err := tiering.LoadIdentity(ctx, archive)
	if err != nil {
		return fmt.Errorf("whose the archive is: %w", err)
	}
	if have.ClusterID == now.ClusterID && have.ArchiveID == now.ArchiveID {
		return nil
	}
	now.KeepBelow = have.KeepBelow
	return tiering.TakeOver(ctx, archive, was, now)
}
