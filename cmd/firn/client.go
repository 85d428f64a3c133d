package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// defaultBrokers is where clients look first.
const defaultBrokers = "localhost:9092"

// brokersFlag adds -b to a verb that talks to a broker.
func brokersFlag(c *cobra.Command, to *string) {
	d := os.Getenv("FIRN_BROKERS")
	if d == "" {
		d = defaultBrokers
	}
	c.Flags().StringVarP(to, "bootstrap-server", "b", d, "brokers to ask first, host:port[,host:port]; $FIRN_BROKERS sets the default")
}

// connect makes a client that gives up in words rather than retrying for ever.
func connect(brokers string, opts ...kgo.Opt) (*kgo.Client, error) {
	base := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(brokers, ",")...),
		kgo.ClientID("firn"),
		kgo.RetryTimeout(20 * time.Second),
	}
	guard := &httpGuard{}
	cl, err := kgo.NewClient(append(append(base, kgo.WithHooks(guard), kgo.Dialer(guard.dial)), opts...)...)
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", brokers, err)
	}
	guard.stop = cl.Close
	return cl, nil
}

// httpGuard stops a client that speaks to an HTTP server, which waits for the end
// of a request that it doesn't understand, as the client waits for the answer;
// reach then finds the words.
type httpGuard struct {
	once     sync.Once
	answered atomic.Bool
	stop     func()
}

var _ kgo.HookBrokerE2E = (*httpGuard)(nil)

// httpAfter is how long a broker may be silent before it is tried in HTTP.
const httpAfter = time.Second

func (g *httpGuard) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	g.once.Do(func() {
		time.AfterFunc(httpAfter, func() {
			if !g.answered.Load() && httpServer(addr) != "" {
				g.stop()
			}
		})
	})
	return c, nil
}

func (g *httpGuard) OnBrokerE2E(_ kgo.BrokerMetadata, _ int16, e kgo.BrokerE2E) {
	if e.Err() == nil {
		g.answered.Store(true)
	}
}

// admin runs f with an admin client.
func admin(brokers string, f func(*kadm.Client) error) error {
	return withClient(brokers, func(_ *kgo.Client, a *kadm.Client) error { return f(a) })
}

// withClient runs f with a client, and an admin client on it.
func withClient(brokers string, f func(*kgo.Client, *kadm.Client) error) error {
	cl, err := connect(brokers)
	if err != nil {
		return err
	}
	defer cl.Close()
	a := kadm.NewClient(cl)
	a.SetTimeoutMillis(30_000)
	return reach(brokers, f(cl, a))
}

const nobodyAnswers = "no broker answers"

// reach adds what to do to an error that says that nobody answers.
func reach(brokers string, err error) error {
	if err == nil || strings.Contains(err.Error(), nobodyAnswers) || errors.Is(err, errHTTP) {
		return err
	}
	if at := httpServer(brokers); at != "" {
		return fmt.Errorf("%w: %s answers in HTTP, as firn's admin listener does; name a Kafka listener with -b (the broker says where it is when it starts; admin listeners go into --admin)", errHTTP, at)
	}
	if s := err.Error(); strings.Contains(s, "connection refused") || strings.Contains(s, "unable to dial") {
		return fmt.Errorf(nobodyAnswers+" at %s: start one with `firn serve`, or name another with -b (%w)", brokers, err)
	}
	return err
}

var errHTTP = errors.New("no Kafka listener")

// httpServer is the first of brokers that answers a request of HTTP, "" if none
// does. It is asked once something has gone wrong: the clients' own words for an
// HTTP answer are those for any that makes no sense.
func httpServer(brokers string) string {
	for _, at := range strings.Split(brokers, ",") {
		c, err := net.DialTimeout("tcp", at, 2*time.Second)
		if err != nil {
			continue
		}
		answer := make([]byte, len("HTTP/"))
		_ = c.SetDeadline(time.Now().Add(2 * time.Second))
		_, err = fmt.Fprintf(c, "HEAD / HTTP/1.0\r\n\r\n")
		if err == nil {
			_, err = io.ReadFull(c, answer)
		}
		c.Close()
		if err == nil && string(answer) == "HTTP/" {
			return at
		}
	}
	return ""
}

// answers makes sure that somebody does before a verb begins to wait.
func answers(ctx context.Context, cl *kgo.Client, brokers string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := cl.Ping(ctx); err != nil {
		if err := reach(brokers, err); errors.Is(err, errHTTP) {
			return err
		}
		return fmt.Errorf(nobodyAnswers+" at %s: start one with `firn serve`, or name another with -b (%w)", brokers, err)
	}
	return nil
}

// table prints aligned columns.
type table struct{ w *tabwriter.Writer }

func newTable(w io.Writer, head ...string) table {
	t := table{tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)}
	if len(head) > 0 {
		fmt.Fprintln(t.w, strings.Join(head, "\t"))
	}
	return t
}

func (t table) row(cells ...any) {
	s := make([]string, len(cells))
	for i, c := range cells {
		s[i] = fmt.Sprint(c)
	}
	fmt.Fprintln(t.w, strings.Join(s, "\t"))
}

func (t table) flush() { t.w.Flush() }

// printJSON prints one value on one line.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// bytesText is n in words: 1.5 GiB.
func bytesText(n int64) string {
	const k = 1024
	if n < k {
		return fmt.Sprintf("%d B", n)
	}
	f, unit := float64(n), ""
	for _, unit = range []string{"KiB", "MiB", "GiB", "TiB", "PiB"} {
		if f /= k; f < k {
			break
		}
	}
	return fmt.Sprintf("%.1f %s", f, unit)
}

// countText is n with blanks between thousands.
func countText(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + " " + s[i:]
	}
	return s
}

// isCode: err is the Kafka error of this name.
func isCode(err error, name string) bool {
	var k *kerr.Error
	return errors.As(err, &k) && k.Message == name
}

// retriable: trying again may help.
func retriable(err error) bool {
	return kerr.IsRetriable(err) || kgo.IsRetryableBrokerErr(err)
}

// idText is a topic id as Kafka's tools print it.
func idText(id kadm.TopicID) string { return base64.RawURLEncoding.EncodeToString(id[:]) }
