package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// mapWidth is the number of columns of the tier map.
const mapWidth = 60

// drawMap shows where each stretch of time of each partition lies.
func (d *demo) drawMap(ctx context.Context) error {
	vs, err := topicViews(ctx, d.brokers, d.topic)
	if err != nil {
		return err
	}
	return admin(d.brokers, func(a *kadm.Client) error {
		step := d.until.Sub(d.from) / mapWidth
		starts := make([]kadm.ListedOffsets, mapWidth)
		for i := range starts {
			if starts[i], err = a.ListOffsetsAfterMilli(ctx, d.from.Add(step*time.Duration(i)).UnixMilli(), d.topic); err != nil {
				return fmt.Errorf("offsets by time: %w", err)
			}
		}
		fmt.Fprintf(d.out, "\n%-22s%s\n", d.topic, timeScale(d.from, step))
		for _, v := range vs {
			offsets := make([]int64, mapWidth)
			for i, l := range starts {
				offsets[i] = -1
				if o, ok := l.Lookup(d.topic, v.Partition); ok {
					offsets[i] = o.Offset
				}
			}
			fmt.Fprintf(d.out, "  p%d %12s rec  %s\n", v.Partition, countText(v.End-v.LogStart), tierRow(v, offsets))
		}
		fmt.Fprint(d.out, "  ░ archive only   ▒ archive and local disk   █ local disk only\n\n")
		return nil
	})
}

// tierRow draws one partition: offsets[i] is the first offset of column i, -1 if
// nothing is that young.
func tierRow(v partitionView, offsets []int64) string {
	var b strings.Builder
	for _, o := range offsets {
		switch {
		case o < 0:
			b.WriteRune(' ')
		case o < v.LocalStart:
			b.WriteRune('░')
		case o < v.Archived:
			b.WriteRune('▒')
		default:
			b.WriteRune('█')
		}
	}
	return b.String()
}

// timeScale labels the columns with months, as many as fit.
func timeScale(from time.Time, step time.Duration) string {
	line := []byte(strings.Repeat(" ", mapWidth))
	for i := 0; i+7 <= mapWidth; i += 15 {
		copy(line[i:], from.Add(step*time.Duration(i)).Format("2006-01"))
	}
	return string(line) + "now"
}
