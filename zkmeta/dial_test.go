package zkmeta

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// TestNoAnswerBeforeTheWatches: under the race detector no answer comes in before the
// library has set its watches again. If it has none to set, it is not held up for long.
func TestNoAnswerBeforeTheWatches(t *testing.T) {
	if holdTime == 0 {
		t.Skip("only under the race detector")
	}
	packet := func(kind uint32) []byte {
		return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32([]byte{0, 0, 0, 8}, 1), kind)
	}
	for name, set := range map[string]bool{"set": true, "none to set": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, theirs := net.Pipe()
				defer ours.Close()
				defer theirs.Close()
				go io.Copy(io.Discard, theirs)
				go theirs.Write([]byte("answer"))
				g := &guarded{Conn: ours, link: newLink(&Config{}, nil), greeted: true, watches: make(chan struct{})}
				began, read := time.Now(), make(chan time.Duration, 1)
				go func() {
					if _, err := io.ReadFull(g, make([]byte, 6)); err != nil {
						t.Error(err)
					}
					read <- time.Since(began)
				}()
				g.Write(packet(4)) // another request
				synctest.Wait()
				if len(read) > 0 {
					t.Error("an answer is read before the watches are set")
				}
				var want time.Duration = holdTime
				if set {
					g.Write(packet(setWatches))
					g.Write(packet(setWatches)) // there may be more than fit into one
					want = 0
				}
				if took := <-read; took != want {
					t.Errorf("read after %v, want %v", took, want)
				}
			})
		})
	}
}
