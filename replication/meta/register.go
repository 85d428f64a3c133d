package meta

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Incarnation is a start of a broker: what its registration rests on.
type Incarnation struct {
	// Broker is what is to be registered; its epoch is Register's to give.
	Broker Broker
	// BootID identifies this boot of the machine: a crash of the process alone
	// keeps the page cache. Empty means unknown.
	BootID string
	// LastEpoch and IntendedEpoch are what the data directory has recorded: of
	// the last registration known to have happened, and of the last one tried.
	LastEpoch, IntendedEpoch int64
	// CleanNonce is the clean-shutdown mark of the log directories, empty if one
	// lacks it.
	CleanNonce string
	// Lost are partitions whose replica here has lost, or must discard, what it
	// was counted for (S7).
	Lost []Lost
	// Intend records the epoch of the registration that is about to be tried,
	// durably.
	Intend func(epoch int64) error
}

var (
	// ErrRolledBack: the store knows less than this broker has seen of it (Z1).
	ErrRolledBack = errors.New("meta: the metadata store has gone back to an older state")
	// ErrDuplicateBroker: another broker is registered under this id.
	ErrDuplicateBroker = errors.New("meta: another broker is registered under this id")
)

// registerTries bounds how often Register begins anew after a conflict, of which
// only another broker of the same id could make many, or an unknown outcome.
const registerTries = 10

// Register registers a broker, after recovery of all its logs, in a new broker
// epoch. An unknown outcome is settled by trying again: what has been committed
// after all is found, and replaced by the next.
func Register(ctx context.Context, s Store, in Incarnation) (Registration, error) {
	var err error
	for range registerTries {
		var r Registration
		var w Write
		if r, w, err = register(ctx, s, in); err != nil {
			return Registration{}, err
		}
		if err := in.Intend(r.Epoch); err != nil {
			return Registration{}, fmt.Errorf("meta: recording broker epoch %d: %w", r.Epoch, err)
		}
		in.IntendedEpoch = r.Epoch
		if err = w.Commit(ctx, s); err == nil {
			return r, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return Registration{}, fmt.Errorf("meta: registering broker %d: %w", in.Broker.ID, err)
}

// places are endpoints for people.
func places(es []Endpoint) string {
	var at []string
	for _, e := range es {
		at = append(at, net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port))))
	}
	return strings.Join(at, ", ")
}

// register reads what there is and makes the next registration of it.
func register(ctx context.Context, s Store, in Incarnation) (Registration, Write, error) {
	id := in.Broker.ID
	last, err := LoadRegistration(ctx, s, id)
	if errors.Is(err, ErrNotFound) {
		last = Registration{ID: id, Version: Missing}
	} else if err != nil {
		return Registration{}, Write{}, err
	}
	if in.LastEpoch > last.Epoch {
		return Registration{}, Write{}, fmt.Errorf("%w: broker %d has been registered in epoch %d, the store says %d", ErrRolledBack, id, in.LastEpoch, last.Epoch)
	}
	next := last.next(in)
	in.Broker.Epoch = next.Epoch
	w := Write{Note: Note{Brokers: true}}

	// The node of an earlier session may still stand. If it is of this data
	// directory, whose lock we hold, that process is dead (B1).
	old, err := s.Get(ctx, BrokerPath(id))
	switch {
	case err == nil:
		b, err := decodeBroker(id, old)
		if err != nil {
			return Registration{}, Write{}, err
		}
		if b.StorageID != in.Broker.StorageID {
			return Registration{}, Write{}, fmt.Errorf("%w: broker %d, at %s, with another log directory. Give each broker a broker.id of its own", ErrDuplicateBroker, id, places(b.Endpoints))
		}
		w.Ops = append(w.Ops, Op{Kind: Delete, Path: BrokerPath(id), Version: old.Version})
	case !errors.Is(err, ErrNotFound):
		return Registration{}, Write{}, err
	}
	w.Ops = append(w.Ops, createOrSet(RegistrationPath(id), EncodeRegistration(next), last.Version),
		Op{Kind: CreateEphemeral, Path: BrokerPath(id), Value: encodeBroker(in.Broker)})
	if len(in.Lost) > 0 {
		o, err := LoadOffline(ctx, s, id)
		if err != nil {
			return Registration{}, Write{}, err
		}
		o.Add(in.Lost...)
		w.Ops = append(w.Ops, createOrSet(offlinePath(id), encodeOffline(o), o.Version))
	}
	return next, w, nil
}

// next is the registration after r. What was counted for before holds on if the
// broker stopped in order, or if storage, boot and broker epoch are those that
// the node knows: then at most the process crashed, and the page cache is intact.
// The epoch may be one that was intended, its outcome then unknown (Z3).
func (r Registration) next(in Incarnation) Registration {
	clean := r.Clean != nil && in.CleanNonce != "" &&
		*r.Clean == CleanShutdown{Epoch: r.Epoch, StorageID: in.Broker.StorageID, Nonce: in.CleanNonce}
	crashed := r.StorageID == in.Broker.StorageID && r.BootID == in.BootID && in.BootID != "" &&
		(r.Epoch == in.LastEpoch || r.Epoch == in.IntendedEpoch)
	next := Registration{
		ID:        r.ID,
		Epoch:     r.Epoch + 1,
		ValidFrom: r.ValidFrom,
		StorageID: in.Broker.StorageID,
		BootID:    in.BootID,
		Version:   r.Version + 1,
	}
	if r.Version == Missing {
		next.Version = 0
	}
	if r.Version == Missing || !clean && !crashed {
		next.ValidFrom = next.Epoch
	}
	return next
}

// createOrSet writes a value over the version known of it.
func createOrSet(path string, value []byte, version int32) Op {
	if version == Missing {
		return Op{Kind: Create, Path: path, Value: value}
	}
	return Op{Kind: Set, Path: path, Value: value, Version: version}
}
