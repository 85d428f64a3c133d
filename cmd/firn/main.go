// Command firn is the broker and its tools. `firn --help` lists the verbs.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// version is what this tree will be released as.
const version = "0.1.0-dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	// The first signal asks everything to end in order; with the handler gone,
	// a second one ends the process at once.
	context.AfterFunc(ctx, stop)
	err := root().ExecuteContext(ctx)
	stop()
	if err == nil {
		return
	}
	var silent *exitError
	if errors.As(err, &silent) {
		os.Exit(silent.code)
	}
	fmt.Fprintln(os.Stderr, "firn:", err)
	os.Exit(1)
}

// exitError ends the process with a code, everything having been said.
type exitError struct{ code int }

func (e *exitError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

func root() *cobra.Command {
	c := &cobra.Command{
		Use:   "firn",
		Short: "A log broker that speaks the Kafka protocol and keeps years of events readable",
		Long: `firn is a log broker that speaks the Kafka protocol. It keeps the young part of
every log on local disks and the old part in an object store, and any Kafka
client reads both alike.

Start with

  firn serve          a broker in this directory, nothing to configure
  firn demo           a year of events, archived and read back, in seconds`,
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	g := &global{}
	c.PersistentFlags().StringVarP(&g.output, "output", "o", "", `output format: "json" for one JSON value a line`)
	c.PersistentPreRunE = func(*cobra.Command, []string) error { return g.check() }
	c.AddCommand(serveCommand(), demoCommand(g), archiveCommand(g), topicCommand(g), clusterCommand(g), produceCommand(g), consumeCommand(g))
	strict(c)
	return c
}

// strict has every command refuse what it doesn't take, and show how it is called:
// one that only has commands below it would answer any word with its help, and
// exit code 0.
func strict(c *cobra.Command) {
	for _, sub := range c.Commands() {
		strict(sub)
		takes := sub.Args
		if sub.HasSubCommands() {
			takes, sub.RunE = cobra.NoArgs, func(c *cobra.Command, _ []string) error { return c.Help() }
		}
		sub.Args = func(c *cobra.Command, args []string) error {
			if takes == nil {
				return nil
			}
			if err := takes(c, args); err != nil {
				return fmt.Errorf("%w (usage: %s)", err, c.UseLine())
			}
			return nil
		}
	}
}

// global holds what every verb understands.
type global struct {
	output string
}

func (g *global) json() bool { return g.output == "json" }

// check refuses an output format that nobody knows.
func (g *global) check() error {
	if g.output != "" && g.output != "json" && g.output != "text" {
		return fmt.Errorf(`-o %s: the formats are "text" and "json"`, g.output)
	}
	return nil
}
