package zkmeta

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/go-zookeeper/zk"
)

// ErrPlace: what zookeeper.connect names holds no cluster of ours, and one that
// was made there would not be the one that was meant.
var ErrPlace = errors.New("zkmeta: no cluster")

// Nodes by which a cluster is known: Kafka's has the first alone.
const (
	clusterIDPath = "/cluster/id"
	ourPath       = "/firn"
)

// neighbours bounds how many nodes beside a forgotten chroot are looked at.
const neighbours = 200

// checkPlace refuses a chroot that was forgotten or is somebody else's, before
// anything is made: below "/" our nodes would mix with those of a cluster in /firn.
func (x *session) checkPlace(ctx context.Context, servers []string) error {
	at := strings.Join(servers, ",")
	_, err := ask(ctx, x, func(c *zk.Conn) (struct{}, error) { return struct{}{}, x.place(c, at) })
	if err != nil && !errors.Is(err, ErrPlace) {
		return fmt.Errorf("zkmeta: looking for a cluster: %w", err)
	}
	return err
}

func (x *session) place(c *zk.Conn, at string) error {
	some, err := exists(c, x.root+clusterIDPath)
	if err != nil {
		return err
	}
	if some {
		ours, err := exists(c, x.root+ourPath)
		if err == nil && !ours {
			err = fmt.Errorf("%w: ZooKeeper at %s holds a Kafka cluster in %s, which is left alone: give this one a chroot of its own, zookeeper.connect=%s/firn",
				ErrPlace, at, cmp.Or(x.root, "/"), at)
		}
		return err
	}
	if above, ok := strings.CutSuffix(x.root, ourPath); ok {
		if is, err := holdsOurs(c, above); err != nil {
			return err
		} else if is {
			return fmt.Errorf("%w: the chroot %s is inside the cluster that ZooKeeper at %s holds in %s: say zookeeper.connect=%s to join that, or choose another chroot",
				ErrPlace, x.root, at, cmp.Or(above, "/"), at+above)
		}
	}
	names, _, err := c.Children(cmp.Or(x.root, "/"))
	if errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNoAuth) {
		return nil // a new chroot, or one that we may not look into
	}
	if err != nil {
		return err
	}
	for _, name := range names[:min(len(names), neighbours)] {
		below := path.Join(cmp.Or(x.root, "/"), name)
		if is, err := holdsOurs(c, below); err != nil {
			return err
		} else if is {
			return fmt.Errorf("%w: ZooKeeper at %s holds no cluster in %s, but one in %s. Was the chroot forgotten? zookeeper.connect=%s",
				ErrPlace, at, cmp.Or(x.root, "/"), below, at+below)
		}
	}
	return nil
}

// holdsOurs: a cluster of ours lives in a chroot.
func holdsOurs(c *zk.Conn, chroot string) (bool, error) {
	if is, err := exists(c, chroot+clusterIDPath); err != nil || !is {
		return false, err
	}
	return exists(c, chroot+changesPath)
}

func exists(c *zk.Conn, path string) (bool, error) {
	is, _, err := c.Exists(path)
	return is, err
}
