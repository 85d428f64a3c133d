package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

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
