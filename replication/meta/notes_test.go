package meta

import (
	"context"
	"errors"
	"testing"
)

func TestSlowReaderOfNotesSeesAGap(t *testing.T) {
	ctx := context.Background()
	n := NotesAfter(7)
	for range 2*keepNotes + 1 {
		n.Add(Note{Brokers: true})
	}
	gap := (*ErrGap)(nil)
	if _, err := n.Changes(ctx, 7, nil); !errors.As(err, &gap) || gap.Last != 7+2*keepNotes+1 {
		t.Fatalf("too far behind: %v", err)
	}
	list, err := n.Changes(ctx, gap.Last-keepNotes, nil)
	if err != nil || len(list) != keepNotes || list[0].Number != gap.Last-keepNotes+1 {
		t.Fatalf("%d behind: %d notes, %v", keepNotes, len(list), err)
	}
}
