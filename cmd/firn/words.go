package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ourWords is err as we say it: the client library's own words are about its inside.
func ourWords(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if se := (*kadm.ShardErrors)(nil); errors.As(err, &se) {
		text = strings.ReplaceAll(text, se.Error(), shards(se))
	}
	if closed := (*kgo.ErrFirstReadEOF)(nil); errors.As(err, &closed) {
		text = strings.ReplaceAll(text, closed.Error(), "the connection was closed without an answer")
	}
	if silent := (*net.OpError)(nil); errors.As(err, &silent) && silent.Op == "read" && silent.Timeout() && silent.Addr != nil {
		text = strings.ReplaceAll(text, silent.Error(), silent.Addr.String()+" does not answer")
	}
	for _, w := range [][2]string{
		{"unable to dial: ", ""},
		{"unable to initialize a producer ID due to request failures", "no producer id was to be had"},
		{"invalid large response size", "an answer that is not of Kafka's protocol: size"},
		{": response exceeds BrokerMaxReadBytes", ""},
		{kerr.LeaderNotAvailable.Error(), "LEADER_NOT_AVAILABLE: it has no leader now"},
		{kerr.NotLeaderForPartition.Error(), "NOT_LEADER_OR_FOLLOWER: who was its leader isn't any more"},
		{kerr.KafkaStorageError.Error(), "KAFKA_STORAGE_ERROR: its leader can't read or write it now, on its disk or in the archive (`firn cluster health` tells more)"},
		{context.DeadlineExceeded.Error(), "no answer in time"},
		{"unknown broker", "a broker that is away"},
		{kgo.ErrClientClosed.Error(), "given up"},
	} {
		text = strings.ReplaceAll(text, w[0], w[1])
	}
	if text == err.Error() {
		return err
	}
	return &worded{err, text}
}

// worded is an error in other words.
type worded struct {
	error
	text string
}

func (w *worded) Error() string { return w.text }
func (w *worded) Unwrap() error { return w.error }

// shards names what failed of a request that went to several brokers, and whose.
func shards(se *kadm.ShardErrors) string {
	var all []string
	for _, e := range se.Errs {
		text := ourWords(e.Err).Error()
		if e.Broker.NodeID >= 0 {
			text = fmt.Sprintf("broker %d at %s: %s", e.Broker.NodeID, net.JoinHostPort(e.Broker.Host, strconv.Itoa(int(e.Broker.Port))), text)
		}
		if !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return strings.Join(all, "; ")
}
