package meta

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Image is what a broker or the controller knows of the cluster, as read: kept
// current by the notes, replaced as a whole after a gap. It belongs to one
// goroutine; what is reached through it is replaced, never changed.
type Image struct {
	// Brokers are those registered now.
	Brokers map[int32]Broker
	// Registrations are of all that ever were.
	Registrations map[int32]Registration
	// Offline is what brokers give up; only those that list something.
	Offline map[int32]Offline
	// Controller is NoLeader if there is none; ControllerEpoch is that of the last.
	Controller      Member
	ControllerEpoch int32
	Topics          map[string]*TopicImage
	// BrokerConfigs by entity: an id, or "<default>".
	BrokerConfigs map[string]Config
	// Elections are the wishes that are not granted yet, by name.
	Elections map[string]Election

	audited TopicPartition // what Audit begins with
}

// Clone is a copy for another goroutine. It shares what is never changed.
func (img *Image) Clone() *Image {
	c := *img
	c.Topics, c.BrokerConfigs = maps.Clone(img.Topics), maps.Clone(img.BrokerConfigs)
	return &c
}

// View is an Image with how far it goes.
type View struct {
	Image *Image
	// After is the number of the last note in it, Session the session that it was
	// read in and that the number belongs to.
	After, Session int64
}

// TopicImage is a topic with its configs and the states of its partitions.
type TopicImage struct {
	Topic
	Config Config
	// States[p] is partition p's; its Version is Missing where the controller
	// has not made it yet.
	States []PartitionState
}

// NoState is the state of a partition that has none yet.
func NoState() PartitionState { return PartitionState{Leader: NoLeader, Version: Missing} }

// Begin reads everything, and returns the number of the note to go on after.
func Begin(ctx context.Context, s Store) (*Image, int64, error) {
	// The number comes first: what changes during the reading is read again.
	_, err := s.Changes(ctx, -1)
	gap := (*ErrGap)(nil)
	if !errors.As(err, &gap) {
		return nil, 0, fmt.Errorf("meta: reading everything: %w", err)
	}
	img, err := load(ctx, s)
	if err != nil {
		return nil, 0, fmt.Errorf("meta: reading everything: %w", err)
	}
	return img, gap.Last, nil
}

func load(ctx context.Context, s Store) (*Image, error) {
	img := &Image{Topics: make(map[string]*TopicImage), BrokerConfigs: make(map[string]Config)}
	if err := img.readBrokers(ctx, s); err != nil {
		return nil, err
	}
	names, err := s.Children(ctx, topics)
	if err != nil {
		return nil, err
	}
	if err := img.readTopics(ctx, s, names); err != nil {
		return nil, err
	}
	entities, err := s.Children(ctx, configs+"/"+string(BrokerConfig))
	if err != nil {
		return nil, err
	}
	for _, entity := range entities {
		if err := img.readConfig(ctx, s, string(BrokerConfig)+"/"+entity); err != nil {
			return nil, err
		}
	}
	img.Elections, err = loadElections(ctx, s)
	return img, err
}

// Update reads again what the notes name. After an error some of it may have
// been read; the same notes may be applied again.
func (img *Image) Update(ctx context.Context, s Store, notes []Note) error {
	var all Note
	for _, n := range notes {
		all.merge(n)
	}
	if all.Brokers {
		if err := img.readBrokers(ctx, s); err != nil {
			return err
		}
	}
	if err := img.readTopics(ctx, s, unique(all.Topics)); err != nil {
		return err
	}
	for _, entity := range unique(all.Configs) {
		if err := img.readConfig(ctx, s, entity); err != nil {
			return err
		}
	}
	if all.Elections {
		wishes, err := loadElections(ctx, s)
		if err != nil {
			return err
		}
		img.Elections = wishes
	}
	return img.readStates(ctx, s, unique(all.Partitions))
}

// unique is list with each value once.
func unique[T comparable](list []T) []T {
	seen := make(map[T]bool, len(list))
	return slices.DeleteFunc(slices.Clone(list), func(v T) bool {
		was := seen[v]
		seen[v] = true
		return was
	})
}

func (img *Image) readBrokers(ctx context.Context, s Store) error {
	brokers := make(map[int32]Broker)
	regs := make(map[int32]Registration)
	given := make(map[int32]Offline)
	if err := eachBroker(ctx, s, registrations, func(id int32, n Node) error {
		r, err := decodeRegistration(id, n)
		regs[id] = r
		return err
	}); err != nil {
		return err
	}
	if err := eachBroker(ctx, s, brokerIDs, func(id int32, n Node) error {
		b, err := decodeBroker(id, n)
		brokers[id] = b
		return err
	}); err != nil {
		return err
	}
	if err := eachBroker(ctx, s, offline, func(id int32, n Node) error {
		o, err := decodeOffline(id, n)
		if len(o.Partitions) > 0 || o.Draining != 0 || o.Full != 0 {
			given[id] = o
		}
		return err
	}); err != nil {
		return err
	}
	controller, err := LoadController(ctx, s)
	if err != nil {
		return err
	}
	epoch, _, err := loadControllerEpoch(ctx, s)
	if err != nil {
		return err
	}
	img.ControllerEpoch = epoch
	img.Brokers, img.Registrations, img.Offline, img.Controller = brokers, regs, given, controller
	return nil
}

// Registered are the registrations that brokers hold now.
func (img *Image) Registered() map[int32]Registration {
	now := make(map[int32]Registration, len(img.Brokers))
	for id, b := range img.Brokers {
		if r, ok := img.Registrations[id]; ok && r.Epoch == b.Epoch {
			now[id] = r
		}
	}
	return now
}

// readTopics reads topics, and those of their states that aren't known yet: those
// that change are named by notes of their own.
func (img *Image) readTopics(ctx context.Context, s Store, names []string) error {
	read := make([]*TopicImage, len(names))
	err := parallel(ctx, len(names), func(ctx context.Context, i int) error {
		t, err := loadTopic(ctx, s, names[i])
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		read[i] = t
		return err
	})
	if err != nil {
		return err
	}
	var missing []stateSlot
	for i, name := range names {
		if read[i] != nil {
			missing = append(missing, read[i].succeed(img.Topics[name])...)
		}
	}
	if err := fillStates(ctx, s, missing); err != nil {
		return err
	}
	for i, name := range names {
		if read[i] == nil {
			delete(img.Topics, name)
		} else {
			img.Topics[name] = read[i]
		}
	}
	return nil
}

// succeed has t, as just read, take the place of old, which may be nil: what old
// knew later it keeps, and the states that old knew. It returns those to be read.
func (t *TopicImage) succeed(old *TopicImage) []stateSlot {
	t.States = make([]PartitionState, len(t.Replicas))
	var known []PartitionState
	if old != nil && old.ID == t.ID {
		if old.Rev > t.Rev { // Z1
			t.Topic = old.Topic
			t.States = make([]PartitionState, len(t.Replicas))
		}
		if t.Config.Version != Missing && old.Config.Rev > t.Config.Rev {
			t.Config = old.Config
		}
		known = old.States
	}
	var missing []stateSlot
	for p := range t.States {
		if p < len(known) && known[p].Version != Missing {
			t.States[p] = known[p]
		} else {
			missing = append(missing, stateSlot{t, int32(p)})
		}
	}
	return missing
}

// stateSlot is a state that is to be read.
type stateSlot struct {
	topic     *TopicImage
	partition int32
}

func fillStates(ctx context.Context, s Store, slots []stateSlot) error {
	return parallel(ctx, len(slots), func(ctx context.Context, i int) (err error) {
		t, p := slots[i].topic, slots[i].partition
		t.States[p], err = LoadState(ctx, s, t.Name, p)
		return err
	})
}

// LoadTopic reads a topic with everything of it; ErrNotFound if there is none.
func LoadTopic(ctx context.Context, s Store, name string) (*TopicImage, error) {
	t, err := loadTopic(ctx, s, name)
	if err != nil {
		return nil, err
	}
	return t, fillStates(ctx, s, t.succeed(nil))
}

func loadTopic(ctx context.Context, s Store, name string) (*TopicImage, error) {
	n, err := s.Get(ctx, TopicPath(name))
	if err != nil {
		return nil, err
	}
	t := &TopicImage{}
	if t.Topic, err = DecodeTopic(name, n); err != nil {
		return nil, err
	}
	t.Config, err = LoadConfig(ctx, s, TopicConfig, name)
	return t, err
}

// LoadState reads a partition's state; NoState if it has none yet.
func LoadState(ctx context.Context, s Store, topic string, p int32) (PartitionState, error) {
	n, err := s.Get(ctx, StatePath(topic, p))
	if errors.Is(err, ErrNotFound) {
		return NoState(), nil
	}
	if err != nil {
		return PartitionState{}, err
	}
	state, err := decodeState(n)
	if err != nil {
		return PartitionState{}, fmt.Errorf("meta: %s-%d: %w", topic, p, err)
	}
	return state, nil
}

// readStates reads states again. A topic is copied once, however many of its
// partitions have changed, since others may hold the old one.
func (img *Image) readStates(ctx context.Context, s Store, parts []TopicPartition) error {
	parts = slices.DeleteFunc(parts, func(tp TopicPartition) bool {
		t := img.Topics[tp.Topic] // nil: it has gone, or a note about it is on its way
		return t == nil || tp.Partition < 0 || int(tp.Partition) >= len(t.States)
	})
	read := make([]PartitionState, len(parts))
	err := parallel(ctx, len(parts), func(ctx context.Context, i int) (err error) {
		read[i], err = LoadState(ctx, s, parts[i].Topic, parts[i].Partition)
		return err
	})
	if err != nil {
		return err
	}
	copied := make(map[string]bool)
	for i, tp := range parts {
		t, state := img.Topics[tp.Topic], read[i]
		if state.Version != Missing && state.Rev < t.States[tp.Partition].Rev { // Z1
			continue
		}
		if !copied[tp.Topic] {
			c := *t
			c.States = slices.Clone(t.States)
			t, copied[tp.Topic] = &c, true
			img.Topics[tp.Topic] = t
		}
		t.States[tp.Partition] = state
	}
	return nil
}

func (img *Image) readConfig(ctx context.Context, s Store, entity string) error {
	name, ok := strings.CutPrefix(entity, string(BrokerConfig)+"/")
	if !ok {
		return nil
	}
	c, err := LoadConfig(ctx, s, BrokerConfig, name)
	if err != nil {
		return err
	}
	if c.Version == Missing {
		delete(img.BrokerConfigs, name)
	} else if c.Rev >= img.BrokerConfigs[name].Rev {
		img.BrokerConfigs[name] = c
	}
	return nil
}

// eachChild reads every child of path. One that goes meanwhile is left out.
func eachChild(ctx context.Context, s Store, path string, f func(name string, n Node) error) error {
	names, err := s.Children(ctx, path)
	if err != nil {
		return err
	}
	for _, name := range names {
		n, err := s.Get(ctx, path+"/"+name)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if err := f(name, n); err != nil {
			return err
		}
	}
	return nil
}

// eachBroker is eachChild of nodes that are named by broker ids.
func eachBroker(ctx context.Context, s Store, path string, f func(id int32, n Node) error) error {
	return eachChild(ctx, s, path, func(name string, n Node) error {
		id, err := strconv.ParseInt(name, 10, 32)
		if err != nil || id < 0 {
			return malformed(path, "broker id %.20q", name)
		}
		return f(int32(id), n)
	})
}
