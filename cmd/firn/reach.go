package main

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// connect makes a client that gives up in words rather than retrying for ever.
func connect(brokers string, opts ...kgo.Opt) (*kgo.Client, error) {
	seeds, err := addresses(brokers)
	if err != nil {
		return nil, err
	}
	guard := &guard{}
	base := []kgo.Opt{
		kgo.SeedBrokers(seeds...),
		kgo.ClientID("firn"),
		kgo.RetryTimeout(20 * time.Second),
		// Who waits for a leader hears of it soon.
		kgo.MetadataMinAge(500 * time.Millisecond),
		kgo.WithHooks(guard), kgo.Dialer(guard.dial),
	}
	cl, err := kgo.NewClient(append(base, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", brokers, err)
	}
	guard.stop = cl.Close
	return cl, nil
}

// addresses are those that -b names, each with a port.
func addresses(brokers string) (at []string, err error) {
	for b := range strings.SplitSeq(brokers, ",") {
		if b = strings.TrimSpace(b); b == "" {
			continue
		}
		host, port, err := net.SplitHostPort(b)
		if err != nil {
			host, port = strings.Trim(b, "[]"), "9092"
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, fmt.Errorf("-b %s: %q is no port; write host:port", b, port)
		}
		at = append(at, net.JoinHostPort(host, port))
	}
	if at == nil {
		return nil, errors.New("-b names no broker; write host:port")
	}
	return at, nil
}

// guard stops a client that speaks to what is no broker but waits for more, as an
// HTTP server does for the end of a request that it doesn't understand; reach then
// finds the words.
type guard struct {
	once     sync.Once
	answered atomic.Bool
	stop     func()
}

var _ kgo.HookBrokerE2E = (*guard)(nil)

// guardAfter is how long a broker may be silent before it is looked at.
const guardAfter = time.Second

func (g *guard) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	g.once.Do(func() {
		time.AfterFunc(guardAfter, func() {
			if g.answered.Load() {
				return
			}
			if what, _ := listens(addr); what == isHTTP || what == isTLS {
				g.stop()
			}
		})
	})
	return c, nil
}

func (g *guard) OnBrokerE2E(_ kgo.BrokerMetadata, _ int16, e kgo.BrokerE2E) {
	if e.Err() == nil {
		g.answered.Store(true)
	}
}

// errUnreachable: no broker answers, and the error says so.
var errUnreachable = errors.New("no broker answers")

// reach is err in our words; where no broker answers, it says what does, and what
// to do.
func reach(brokers string, err error) error {
	if err == nil || errors.Is(err, errUnreachable) || errors.Is(err, context.Canceled) {
		return err
	}
	at, bad := addresses(brokers)
	if bad != nil {
		return err
	}
	what := ""
	for _, a := range at {
		switch w, there := listens(a); {
		case there && w == isBroker:
			return ourWords(err) // which speaks of something else
		case there && what == "":
			what = a + " " + w
		}
	}
	if what != "" {
		return fmt.Errorf("%w: %s; name a Kafka listener with -b (a broker says where it is when it starts)", errUnreachable, what)
	}
	return fmt.Errorf("%w at %s: start one with `firn serve`, or name another with -b (%w)", errUnreachable, brokers, ourWords(err))
}

// answers makes sure that somebody does before a verb begins to wait.
func answers(ctx context.Context, cl *kgo.Client, brokers string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return reach(brokers, cl.Ping(ctx))
}

// lookTime bounds each question of what listens somewhere.
const lookTime = 2 * time.Second

// What listens where a broker was looked for.
const (
	isBroker = ""
	isHTTP   = "answers in HTTP, as firn's admin listener does (which goes into --admin)"
	isTLS    = "speaks TLS, which firn's commands don't yet"
	isOther  = "takes connections, but does not answer as a broker does: it hangs, or is something else"
)

// listens says what is at an address. It is asked once something has gone wrong: a
// client's own words for an HTTP answer are those for any that makes no sense.
func listens(at string) (what string, there bool) {
	// A broker is asked as one first: it logs what isn't Kafka.
	if kafka, there := speaksKafka(at); kafka || !there {
		return isBroker, there
	}
	text, there := exchange(at, []byte("HEAD / HTTP/1.0\r\n\r\n"), len("HTTP/1.0 400"))
	http := strings.HasPrefix(string(text), "HTTP/")
	switch {
	case !there:
		return "", false
	case http && !strings.HasSuffix(string(text), " 400"): // as one answers who wants TLS
		return isHTTP, true
	case speaksTLS(at):
		return isTLS, true
	case http:
		return isHTTP, true
	}
	return isOther, true
}

// speaksKafka asks for ApiVersions, version 0. To an HTTP server the request's length,
// 10, is a line's end, so that it answers at once, too.
func speaksKafka(at string) (yes, there bool) {
	const correlation = 0x6669726e
	ask := binary.BigEndian.AppendUint32([]byte{0, 0, 0, 10, 0, 18, 0, 0}, correlation)
	got, there := exchange(at, append(ask, 0xff, 0xff), 8) // no client id
	return len(got) == 8 && binary.BigEndian.Uint32(got[4:]) == correlation, there
}

func speaksTLS(at string) bool {
	c, err := tls.DialWithDialer(&net.Dialer{Timeout: lookTime}, "tcp", at, &tls.Config{InsecureSkipVerify: true}) // nothing is sent
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// exchange sends a request and reads the first n bytes of the answer, or what comes
// of them.
func exchange(at string, request []byte, n int) (answer []byte, there bool) {
	c, err := net.DialTimeout("tcp", at, lookTime)
	if err != nil {
		return nil, false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(lookTime))
	if _, err := c.Write(request); err != nil {
		return nil, true
	}
	answer = make([]byte, n)
	n, _ = io.ReadFull(c, answer)
	return answer[:n], true
}
