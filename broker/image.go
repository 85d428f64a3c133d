package broker

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"firn/broker/config"
	"firn/replication"
	"firn/replication/meta"
)

// image follows the metadata store and makes of it the picture that the rest of
// the broker works with. It is the only one that opens, moves and drops
// partitions here: what the picture shows of this broker's replicas is done, not
// planned.
//
//	notes ─▶ read what they name ─▶ draw ─▶ replicas.apply ─▶ publish
//
// One goroutine runs it; nobody else touches its fields, but by offer.
type image struct {
	store    meta.Store
	node     int32
	replicas *replicas
	log      *slog.Logger
	publish  func(*topicIndex)
	// known refuses a picture that is older than what this broker has seen.
	known func(*topicIndex) error
	// joined: this broker is registered; unlist takes off its list what it has
	// given up no longer.
	joined func() bool
	unlist func(context.Context) error
	// static is the broker's configuration without dynamic values.
	static *config.Broker

	// meta is what was read, last the number of the last note in it, now what
	// was published of it.
	meta *meta.Image
	last int64
	now  *topicIndex
	// view is held while meta changes, and by who else looks at it; session is the
	// one that it was read in, 0 if that isn't certain.
	view    sync.Mutex
	session int64
	// audit is when part of everything is to be read again.
	audit time.Time
}

// read reads everything.
func (m *image) read(ctx context.Context) error {
	session, _ := m.store.Session()
	img, last, err := meta.Begin(ctx, m.store)
	if now, _ := m.store.Session(); now != session {
		session = 0
	}
	if err != nil {
		return err
	}
	m.view.Lock()
	defer m.view.Unlock()
	m.meta, m.last, m.session = img, last, session
	return nil
}

// offer is what this broker knows, for a controller to go on from.
func (m *image) offer() (meta.View, bool) {
	m.view.Lock()
	defer m.view.Unlock()
	if m.meta == nil || m.session == 0 {
		return meta.View{}, false
	}
	return meta.View{Image: m.meta.Clone(), After: m.last, Session: m.session}, true
}

// update reads again what notes name.
func (m *image) update(ctx context.Context, notes []meta.Note) error {
	m.view.Lock()
	defer m.view.Unlock()
	return m.meta.Update(ctx, m.store, notes)
}

// readAll reads everything, in a new session, and has each replica take on what
// it is to be.
func (m *image) readAll(ctx context.Context) error {
	if err := m.read(ctx); err != nil {
		return err
	}
	x := m.draw()
	if err := m.known(x); err != nil {
		return err
	}
	if err := m.findVanished(ctx, x); err != nil {
		return err
	}
	if err := m.replicas.apply(ctx, m.now, x, true); err != nil {
		return err
	}
	m.now = x
	m.publish(x)
	return nil
}

// run follows the changes until ctx ends.
func (m *image) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := m.next(ctx)
		if errors.Is(err, meta.ErrClosed) { // the session has ended, and so will ctx
			sleep(ctx, time.Second)
			continue
		}
		if err != nil && ctx.Err() == nil {
			m.log.Warn("following the cluster's metadata; will retry", "err", err)
			sleep(ctx, time.Second)
		}
	}
}

// next waits for notes and shows a picture that holds them. After an error the
// same notes come again.
func (m *image) next(ctx context.Context) error {
	until := m.audit
	if again := time.Now().Add(roleRetry); m.replicas.anyCramped() && again.Before(until) {
		until = again
	}
	short, cancel := context.WithDeadline(ctx, until)
	notes, err := m.store.Changes(short, m.last)
	over := short.Err() != nil && ctx.Err() == nil
	cancel()
	if err != nil && over {
		return m.look(ctx)
	}
	if gap := (*meta.ErrGap)(nil); errors.As(err, &gap) {
		if err := m.read(ctx); err != nil {
			return err
		}
		return m.show(ctx)
	}
	if err != nil {
		return err
	}
	if err := m.update(ctx, notes); err != nil {
		return err
	}
	if err := m.show(ctx); err != nil {
		return err
	}
	if len(notes) > 0 {
		m.view.Lock()
		m.last = notes[len(notes)-1].Number
		m.view.Unlock()
	}
	return nil
}

// auditEvery is how often a hundredth of everything is read again.
const auditEvery = time.Minute

// look reads part of everything again, in case a note was lost. Before that is due
// there are logs that wait for space.
func (m *image) look(ctx context.Context) error {
	if time.Now().Before(m.audit) {
		return m.show(ctx)
	}
	first := m.audit.IsZero() // all has just been read
	m.audit = time.Now().Add(auditEvery)
	if first {
		return nil
	}
	m.view.Lock()
	changed, err := m.meta.Audit(ctx, m.store)
	m.view.Unlock()
	if err != nil || changed == 0 {
		return err
	}
	m.log.Debug("audit of the metadata found what no note had told yet", "topics", changed)
	return m.show(ctx)
}

// show draws what is known, brings this broker's replicas up to it, and publishes.
func (m *image) show(ctx context.Context) error {
	x := m.draw()
	if err := m.findVanished(ctx, x); err != nil {
		return err
	}
	if err := m.replicas.apply(ctx, m.now, x, false); err != nil {
		return err
	}
	m.now = x
	m.publish(x)
	if m.joined() && m.replicas.lost.takeAccepted() {
		return m.unlist(ctx)
	}
	return nil
}

// findVanished tells topics that were deleted from those that are merely gone: of a
// deletion the topic's node tells, and when that has gone, its tombstone (B10).
func (m *image) findVanished(ctx context.Context, x *topicIndex) error {
	gone := map[meta.TopicID]bool{}
	for id, t := range m.now.byID {
		if now := m.meta.Topics[t.Name]; x.byID[id] == nil && (now == nil || now.ID != id) {
			gone[id] = true
		}
	}
	if len(gone) == 0 {
		return nil
	}
	purges, err := meta.LoadPurges(ctx, m.store)
	if err != nil {
		return err
	}
	for _, p := range purges {
		delete(gone, p.ID)
	}
	x.vanished = gone
	return nil
}

// draw makes a picture of what was read. Topics in which nothing has changed are
// the last picture's, but for those with a log that is to be opened yet.
func (m *image) draw() *topicIndex {
	x := &topicIndex{
		byName:          make(map[string]*topic, len(m.meta.Topics)),
		byID:            make(map[meta.TopicID]*topic, len(m.meta.Topics)),
		deleting:        map[string]bool{},
		controller:      m.meta.Controller.ID,
		offline:         m.meta.Offline,
		controllerEpoch: m.meta.ControllerEpoch,
		brokers:         slices.SortedFunc(maps.Values(m.meta.Brokers), func(a, b meta.Broker) int { return int(a.ID) - int(b.ID) }),
		registrations:   m.meta.Registrations,
		registered:      m.meta.Registered(),
	}
	m.drawSettings(x)
	for name, from := range m.meta.Topics {
		if from.Deleting {
			x.deleting[name] = true
			continue
		}
		t := m.now.byName[name]
		if t == nil || t.from != from || x.settings != m.now.settings || m.replicas.isCramped(t.ID) {
			t = drawTopic(x.settings, t, from)
		}
		x.byName[name], x.byID[t.ID] = t, t
	}
	return x
}

// defaultEntity is the entity of the dynamic configs that all brokers share.
const defaultEntity = "<default>"

func (m *image) drawSettings(x *topicIndex) {
	own := strconv.Itoa(int(m.node))
	x.dynamic = make(map[string]map[string]string, len(m.meta.BrokerConfigs))
	for entity, c := range m.meta.BrokerConfigs {
		x.dynamic[entity] = c.Values
	}
	x.settings = m.now.settings
	if x.settings == nil || !maps.Equal(x.dynamic[own], m.now.dynamic[own]) || !maps.Equal(x.dynamic[defaultEntity], m.now.dynamic[defaultEntity]) {
		x.settings = m.static.With(x.dynamic[defaultEntity], x.dynamic[own])
	}
}

// drawTopic draws one topic; old is how it was drawn before, or nil.
func drawTopic(settings *config.Broker, old *topic, from *meta.TopicImage) *topic {
	t := &topic{
		Topic:              from.Topic,
		from:               from,
		internal:           isInternal(from.Name),
		overrides:          from.Config.Values,
		states:             from.States,
		parts:              make([]*replication.Partition, len(from.Replicas)),
		stats:              &topicStats{},
		throttledLeaders:   readThrottled(from.Config.Values["leader.replication.throttled.replicas"]),
		throttledFollowers: readThrottled(from.Config.Values["follower.replication.throttled.replicas"]),
	}
	t.settings = settings.Topic(t.overrides, neverArchived(t.Name))
	if old != nil && old.ID == t.ID {
		t.stats = old.stats
		copy(t.parts, old.parts)
	}
	return t
}

// sleep waits, and says whether it did to the end.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
