package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// TestOffsetsWaitForLeaders: a leader that is away is waited for, unless what is
// known now is enough; what will not pass is told at once.
func TestOffsetsWaitForLeaders(t *testing.T) {
	away := &kadm.ShardErrors{Errs: []kadm.ShardError{{Err: errors.New("unable to dial")}}}
	all := &kadm.ShardErrors{AllFailed: true, Errs: []kadm.ShardError{{Err: &net.OpError{Op: "dial", Err: errors.New("refused")}}}}
	never := &kadm.ShardErrors{AllFailed: true, Errs: []kadm.ShardError{{Err: kerr.UnsupportedVersion}}}
	one := kadm.ListedOffsets{"t": {0: {Topic: "t", Offset: 7}}}
	electing := kadm.ListedOffsets{"t": {0: {Topic: "t", Err: kerr.NotLeaderForPartition}}}
	unknown := kadm.ListedOffsets{"t": {0: {Topic: "t", Err: kerr.TopicAuthorizationFailed}}}
	type answer struct {
		l   kadm.ListedOffsets
		err error
	}
	for name, c := range map[string]struct {
		patient bool
		answers []answer // the last one again and again
		asked   int
		want    error
	}{
		"all there":             {patient: true, answers: []answer{{one, nil}}, asked: 1},
		"a broker is away":      {patient: true, answers: []answer{{nil, away}, {electing, nil}, {one, nil}}, asked: 3},
		"away, but no patience": {answers: []answer{{one, away}}, asked: 1},
		"another's is away":     {patient: true, answers: []answer{{one, away}}, asked: 1},
		"all are away":          {patient: true, answers: []answer{{nil, all}, {one, nil}}, asked: 2},
		"all, but no patience":  {answers: []answer{{nil, all}}, asked: 1},
		"none will ever":        {patient: true, answers: []answer{{nil, never}}, asked: 1, want: kerr.UnsupportedVersion},
		"a refusal":             {patient: true, answers: []answer{{unknown, nil}}, asked: 1, want: kerr.TopicAuthorizationFailed},
		"nobody comes":          {patient: true, answers: []answer{{electing, nil}}, asked: int(leaderWait/leaderLook) + 2, want: kerr.NotLeaderForPartition},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				_, err := offsets(t.Context(), "t", []int32{0}, c.patient, func(context.Context) (kadm.ListedOffsets, error) {
					a := c.answers[min(asked, len(c.answers)-1)]
					asked++
					return a.l, a.err
				})
				if c.want != nil && (err == nil || !strings.Contains(err.Error(), "t-0")) {
					t.Errorf("%v does not name the partition", err)
				}
				if !errors.Is(err, c.want) || asked != c.asked {
					t.Errorf("asked %d times, %v; want %d, %v", asked, err, c.asked, c.want)
				}
			})
		})
	}
}

func TestOffsetsOutsideAPartitionAreTold(t *testing.T) {
	for p, want := range map[position]string{
		{set: true, offset: 3}:            "partition 1 begins at offset 5",
		{set: true, offset: 5}:            "",
		{set: true, offset: 9}:            "",
		{set: true, offset: 10}:           "partition 1 ends at offset 9",
		{set: true, start: true}:          "",
		{set: true, end: true, offset: 1}: "",
		{}:                                "",
	} {
		if got := p.outside(1, 5, 9); got != want {
			t.Errorf("%+v: %q, want %q", p, got, want)
		}
	}
}

func TestALateAnswerIsAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for took, want := range map[time.Duration]string{noticeEvery / 2: "", 2 * noticeEvery: "late\n"} {
			var b bytes.Buffer
			stop := sayIfLate(&b, "late")
			time.Sleep(took)
			if said := stop(); said != (want != "") || b.String() != want {
				t.Errorf("after %v: %v, %q", took, said, b.String())
			}
		}
	})
}
