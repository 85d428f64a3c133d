package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

// command is main with its arguments.
func command(ctx context.Context, args []string) error {
	var o options
	fs := flag.NewFlagSet("chaos", flag.ContinueOnError)
	fs.DurationVar(&o.Duration, "duration", 10*time.Minute, "how long the whole run takes")
	fs.DurationVar(&o.Slice, "slice", 0, "stop in order after so long; -resume goes on")
	fs.Uint64Var(&o.Seed, "seed", uint64(time.Now().UnixNano())%1_000_000, "of the plan of faults")
	fs.IntVar(&o.Brokers, "brokers", 3, "1 (without ZooKeeper) or more")
	fs.IntVar(&o.ZooKeepers, "zookeepers", 1, "1 or 3")
	fs.IntVar(&o.Kills, "kills", 0, "so many kills in turn instead of a plan")
	fs.Float64Var(&o.Tempo, "tempo", 1, "1 is a thousand records a second")
	partitions := fs.Int("partitions", 9, "of the topic")
	minio := fs.Bool("minio", true, "archive to MinIO, not to a directory")
	only := fs.String("faults", "", "names or beginnings of names, by comma; all that fit without it")
	fs.BoolVar(&o.Brief, "brief", false, "judge by anomalies alone: a run too short to be valid")
	list := fs.Bool("list", false, "list the faults")
	dir := fs.String("dir", "", "where the run lies; a temporary directory without it")
	old := fs.String("resume", "", "go on with the run that lies here")
	root := fs.String("root", ".", "the repository")
	build := fs.String("build", "", "more arguments for go build, by blank")
	set := fs.String("set", "", "more settings of the brokers, by blank")
	if err := fs.Parse(args); err != nil {
		return err
	}
	o.MinIO, o.Partitions, o.Faults, o.Build, o.Set = *minio, int32(*partitions), commas(*only), strings.Fields(*build), strings.Fields(*set)
	if *list {
		for _, f := range faults() {
			fmt.Printf("%-20s brokers %d %s\n", f.name, f.brokers, f.needs)
		}
		return nil
	}
	if o.Brokers == 1 {
		o.ZooKeepers = 0
	}
	r := &run{dir: *dir, out: os.Stdout, p: progress{Options: o}, tool: tools{root: *root, cache: cache(*root)}}
	if *old != "" {
		p, err := resume(*old)
		if err != nil {
			return err
		}
		r.dir, r.p = *old, p
	}
	return r.main(ctx)
}

// main runs a slice, and judges if it was the last.
func (r *run) main(ctx context.Context) error {
	var err error
	temporary := r.dir == ""
	if temporary {
		if r.dir, err = os.MkdirTemp("", "firn-chaos-"); err != nil {
			return err
		}
	}
	if r.dir, err = filepath.Abs(r.dir); err != nil {
		return err
	}
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		return err
	}
	o := &r.p.Options
	fmt.Fprintf(r.out, "chaos: seed %d, %v, %d brokers, %d ZooKeepers, faults %v, at %s\n       in %s\n",
		o.Seed, o.Duration, o.Brokers, o.ZooKeepers, o.Faults, revision(r.tool.root), r.dir)
	done, err := r.slice(ctx)
	if err != nil {
		return fmt.Errorf("seed %d, in %s: %w", o.Seed, r.dir, err)
	}
	if !done {
		fmt.Fprintf(r.out, "%v of %v are over. Go on with:\n  go run ./e2e/chaos -resume %s\n", r.p.Spent.Round(time.Second), o.Duration, r.dir)
		return nil
	}
	ok, err := r.verdict(r.out)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("seed %d failed; everything lies in %s", o.Seed, r.dir)
	}
	if temporary {
		return os.RemoveAll(r.dir)
	}
	return nil
}

func commas(s string) []string {
	return strings.FieldsFunc(s, func(c rune) bool { return c == ',' })
}

// cache is where e2e/setup.sh puts its tools.
func cache(root string) string {
	if c := os.Getenv("FIRN_CACHE"); c != "" {
		return c
	}
	return filepath.Join(root, ".cache")
}

// revision names what is tested.
func revision(root string) string {
	cmd := exec.Command("git", "describe", "--always", "--dirty")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return "an unknown revision"
	}
	return strings.TrimSpace(string(out))
}
