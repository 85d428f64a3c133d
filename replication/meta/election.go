package meta

import (
	"context"
	"errors"
	"fmt"
)

// ElectionKind is what an Election asks for.
type ElectionKind string

const (
	// PreferredElection: the first replica is to lead, if it is in sync.
	PreferredElection ElectionKind = "preferred"
	// UncleanElection: where nobody leads, any replica that is there is to lead,
	// whatever it lacks.
	UncleanElection ElectionKind = "unclean"
)

// Election is the wish of an operator that leaders be elected. The controller
// does what can be done, and removes it.
type Election struct {
	// Name tells it apart; who asks makes one up.
	Name       string
	Kind       ElectionKind
	Partitions map[string][]int32 // by topic
	Version    int32
	Rev        int64
}

// MaxElection is how many partitions one Election may name, so that its node
// stays well below MaxBytes whatever the topics are called.
const MaxElection = 500

type electionJSON struct {
	Version    int                `json:"version"`
	Kind       ElectionKind       `json:"election"`
	Partitions map[string][]int32 `json:"partitions"`
}

// decodeElection reads the node of the election called name.
func decodeElection(name string, n Node) (Election, error) {
	const what = "election"
	var j electionJSON
	if err := decode(what, n.Value, &j); err != nil {
		return Election{}, err
	}
	if j.Kind != PreferredElection && j.Kind != UncleanElection {
		return Election{}, malformed(what, "of kind %.20q", j.Kind)
	}
	return Election{Name: name, Kind: j.Kind, Partitions: j.Partitions, Version: n.Version, Rev: n.Rev}, nil
}

// AskElection writes a new wish down. The writer's fence goes with it.
func AskElection(e Election) (Write, error) {
	named := 0
	for _, ps := range e.Partitions {
		named += len(ps)
	}
	if named > MaxElection {
		return Write{}, fmt.Errorf("%w: an election of %d partitions", ErrTooLarge, named)
	}
	return Write{
		Ops:  []Op{{Kind: Create, Path: electionPath(e.Name), Value: encode(electionJSON{1, e.Kind, e.Partitions})}},
		Note: Note{Elections: true},
	}, nil
}

// DropElection removes a wish: it was granted as far as it can be.
func DropElection(e Election) Write {
	return Write{
		Ops:  []Op{{Kind: Delete, Path: electionPath(e.Name), Version: e.Version}},
		Note: Note{Elections: true},
	}
}

// LoadElection reads a wish; ErrNotFound once it is granted.
func LoadElection(ctx context.Context, s Store, name string) (Election, error) {
	n, err := s.Get(ctx, electionPath(name))
	if err != nil {
		return Election{}, err
	}
	return decodeElection(name, n)
}

// loadElections reads all wishes. A store from before there were any has none.
func loadElections(ctx context.Context, s Store) (map[string]Election, error) {
	all := map[string]Election{}
	err := eachChild(ctx, s, elections, func(name string, n Node) error {
		e, err := decodeElection(name, n)
		all[name] = e
		return err
	})
	if errors.Is(err, ErrNotFound) {
		err = nil
	}
	return all, err
}
