package meta

import (
	"context"
	"maps"
	"slices"
)

// auditShare is the part of everything that one Audit reads again.
const auditShare = 100

// Audit reads a hundredth of what is known again, from where the last one ended,
// and takes over what has changed: should a note ever be lost, that is made good
// in auditShare rounds. It returns how many topics had changed; notes about them
// may merely be on their way.
func (img *Image) Audit(ctx context.Context, s Store) (changed int, err error) {
	names, err := s.Children(ctx, topics)
	if err != nil {
		return 0, err
	}
	var stale []string // unknown, or gone
	for _, name := range names {
		if img.Topics[name] == nil {
			stale = append(stale, name)
		}
	}
	for name := range img.Topics {
		if _, found := slices.BinarySearch(names, name); !found {
			stale = append(stale, name)
		}
	}
	known, parts := img.nextAudit()
	before := make(map[string]*TopicImage, len(known))
	for _, name := range known {
		before[name] = img.Topics[name]
	}
	if err := img.readTopics(ctx, s, slices.Concat(stale, known)); err != nil {
		return 0, err
	}
	if err := img.readStates(ctx, s, parts); err != nil {
		return 0, err
	}
	changed = len(stale)
	for _, name := range known {
		if now := img.Topics[name]; now != nil && now.sameAs(before[name]) {
			img.Topics[name] = before[name] // who goes by the pointer sees no change
		} else {
			changed++
		}
	}
	return changed, img.readBrokers(ctx, s)
}

// nextAudit is what is due: partitions, and the topics that they are of.
func (img *Image) nextAudit() (names []string, parts []TopicPartition) {
	total := 0
	for _, t := range img.Topics {
		total += len(t.States)
	}
	if total == 0 {
		return nil, nil
	}
	room := (total + auditShare - 1) / auditShare
	sorted := slices.Sorted(maps.Keys(img.Topics))
	i, found := slices.BinarySearch(sorted, img.audited.Topic)
	p := img.audited.Partition
	if !found {
		p = 0
	}
	for range sorted {
		if i == len(sorted) {
			i, p = 0, 0
		}
		name := sorted[i]
		names = append(names, name)
		for n := int32(len(img.Topics[name].States)); p < n && room > 0; p++ {
			parts = append(parts, TopicPartition{name, p})
			room--
		}
		if room == 0 {
			img.audited = TopicPartition{name, p}
			return names, parts
		}
		i, p = i+1, 0
	}
	img.audited = TopicPartition{}
	return names, parts
}

// sameAs: both were read of the same nodes, in the same versions.
func (t *TopicImage) sameAs(o *TopicImage) bool {
	return t.ID == o.ID && t.Version == o.Version && t.Config.Version == o.Config.Version &&
		slices.EqualFunc(t.States, o.States, func(a, b PartitionState) bool { return a.Version == b.Version })
}
