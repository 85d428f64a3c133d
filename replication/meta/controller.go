package meta

import (
	"context"
	"errors"
	"fmt"
	"strconv"
)

type controllerJSON struct {
	Version     int   `json:"version"`
	Broker      int32 `json:"brokerid"`
	BrokerEpoch int64 `json:"broker_epoch"`
}

// Controllership is a broker's time as controller.
type Controllership struct {
	Epoch   int32
	version int32
}

// ErrNotController: another broker is the controller.
var ErrNotController = errors.New("meta: another broker is the controller")

// Fence checks that nobody has become controller since.
func (c Controllership) Fence() Op {
	return Op{Kind: Check, Path: controllerEpoch, Version: c.version}
}

// LoadController is the broker that is controller; NoLeader if none is.
func LoadController(ctx context.Context, s Store) (Member, error) {
	n, err := s.Get(ctx, controllerPath)
	if errors.Is(err, ErrNotFound) {
		return NoLeader, nil
	}
	if err != nil {
		return NoLeader, err
	}
	var j controllerJSON
	if err := decode("controller", n.Value, &j); err != nil {
		return NoLeader, err
	}
	return Member{j.Broker, j.BrokerEpoch}, nil
}

// Campaign makes the broker controller, in a new controller epoch, if nobody is.
// ErrNotController: somebody is, or was faster.
func Campaign(ctx context.Context, s Store, self Registration) (Controllership, error) {
	// The epoch comes first: whoever becomes controller after it was read raises it,
	// and our write is refused.
	epoch, version, err := loadControllerEpoch(ctx, s)
	if err != nil {
		return Controllership{}, err
	}
	now, err := LoadController(ctx, s)
	if err != nil {
		return Controllership{}, err
	}
	if now == self.Member() { // a campaign of ours whose outcome we didn't hear (Z3)
		return Controllership{epoch, version}, nil
	}
	var ops []Op
	switch {
	case now.ID == self.ID:
		// Of an earlier registration of ours, whose session the store still waits
		// for. We hold its data directory, so that it is dead (B1).
		ops = append(ops, Op{Kind: Delete, Path: controllerPath, Version: AnyVersion})
	case now != NoLeader:
		return Controllership{}, fmt.Errorf("%w: broker %d", ErrNotController, now.ID)
	}
	w := Write{
		Ops: append(ops,
			Op{Kind: CreateEphemeral, Path: controllerPath, Value: encode(controllerJSON{1, self.ID, self.Epoch})},
			createOrSet(controllerEpoch, strconv.AppendInt(nil, int64(epoch)+1, 10), version),
		),
		Note: Note{Brokers: true},
	}
	err = w.With(self.Fence()...).Commit(ctx, s)
	conflict := (*Conflict)(nil)
	if errors.As(err, &conflict) && (conflict.Op.Path == controllerPath || conflict.Op.Path == controllerEpoch) {
		return Controllership{}, fmt.Errorf("%w: %w", ErrNotController, err)
	}
	if err != nil {
		return Controllership{}, fmt.Errorf("meta: campaign for controller: %w", err)
	}
	if version == Missing {
		return Controllership{epoch + 1, 0}, nil
	}
	return Controllership{epoch + 1, version + 1}, nil
}

func loadControllerEpoch(ctx context.Context, s Store) (epoch, version int32, err error) {
	n, err := s.Get(ctx, controllerEpoch)
	if errors.Is(err, ErrNotFound) {
		return 0, Missing, nil
	}
	if err != nil {
		return 0, 0, err
	}
	e, err := strconv.ParseInt(string(n.Value), 10, 32)
	if err != nil || e < 0 {
		return 0, 0, malformed("controller epoch", "%.20q", n.Value)
	}
	return int32(e), n.Version, nil
}
