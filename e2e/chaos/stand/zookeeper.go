package stand

import (
	"context"
	"errors"
)

// ZooKeeper is a server of the ensemble.
type ZooKeeper struct {
	*Proc
	Addr string
}

func (s *Stand) openZooKeeper(context.Context) error {
	return errors.New("several brokers need ZooKeeper")
}
