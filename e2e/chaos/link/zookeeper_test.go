package link

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"firn/zkmeta/zktest"
)

type silent struct{}

func (silent) Printf(string, ...any) {}

// TestExpire ends the session of a client that is connected: it gets another, and
// what was the first one's is gone.
func TestExpire(t *testing.T) {
	server := zktest.Start(t).Nodes[0]
	l, err := NewZooKeeper(server.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, events, err := zk.Connect([]string{l.Addr}, 10*time.Second, zk.WithLogger(silent{}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	until := func(want zk.State) {
		t.Helper()
		for deadline := time.After(time.Minute); ; {
			select {
			case e := <-events:
				if e.State == want {
					return
				}
			case <-deadline:
				t.Fatalf("the session is never %v", want)
			}
		}
	}
	until(zk.StateHasSession)
	if _, err := c.Create("/mine", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		old := c.SessionID()
		if err := l.Expire(); err != nil {
			t.Fatal(err)
		}
		until(zk.StateExpired)
		until(zk.StateHasSession)
		if c.SessionID() == old {
			t.Error("it has its old session")
		}
		if there, _, err := c.Exists("/mine"); there || err != nil {
			t.Errorf("an ephemeral node outlives its session: %v", err)
		}
	}

	heal := l.Add(Fault{Cut: true})
	until(zk.StateDisconnected)
	heal()
	until(zk.StateHasSession)
}
