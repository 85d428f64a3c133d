package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A store that takes connections and answers nothing holds a start up no longer than
// it is told to, and not in silence.
func TestAStartDoesNotWaitLongForAStoreThatHangs(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "k")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "s")
	hung, err := net.Listen("tcp", "127.0.0.1:0") // whose backlog takes them
	if err != nil {
		t.Fatal(err)
	}
	defer hung.Close()
	const patience = 200 * time.Millisecond
	for _, client := range []string{"aws", "minio"} {
		url := "s3://bucket?endpoint=http://" + hung.Addr().String() + "&client=" + client
		s, err := load(sources{data: t.TempDir(), set: []string{"archive.url=" + url}})
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		n := &node{settings: s}
		began := time.Now()
		store, wait, err := n.openArchive(t.Context(), logger("text", &log), prometheus.NewRegistry(), false, patience)
		if err != nil || store == nil {
			t.Fatalf("%s: a broker that knows its archive: %v", client, err)
		}
		if took := time.Since(began); took > 12*time.Second || wait != time.Second { // a request alone gives up after 15
			t.Errorf("%s: after %v it may wait for %v more", client, took, wait)
		}
		told := log.String()
		for _, want := range []string{"waiting for the archive's store", url, "no answer within 200ms"} {
			if !strings.Contains(told, want) {
				t.Errorf("%s: no %q in the log:\n%s", client, want, told)
			}
		}
		_, _, err = n.openArchive(t.Context(), logger("text", &log), prometheus.NewRegistry(), true, patience)
		if err == nil || !strings.Contains(err.Error(), "no answer within 200ms") {
			t.Errorf("%s: a new broker: %v", client, err)
		}
	}
}

// The log of a broker that stops says so, and why, and when it is done.
func TestAStopIsLogged(t *testing.T) {
	s, err := load(sources{data: t.TempDir(), set: []string{"listeners=PLAINTEXT://127.0.0.1:0", "admin.listener="}})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	n, err := openNode(t.Context(), s, logger("text", &log))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	if err := n.run(ctx, func() { cancel(errors.New("terminated signal received")) }); err != nil {
		t.Error(err)
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if !strings.Contains(log.String(), `level=INFO msg=stopping why="terminated signal received"`) || !strings.Contains(lines[len(lines)-1], "level=INFO msg=stopped seconds=") {
		t.Errorf("the log:\n%s", log.String())
	}
}
