package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"firn/tiering"
)

// meter prints how far something is to standard error, at most four times a second.
type meter struct{ last time.Time }

func (m *meter) line(format string, args ...any) {
	if !isTerminal(os.Stderr) || time.Since(m.last) < 250*time.Millisecond {
		return
	}
	m.last = time.Now()
	fmt.Fprintf(os.Stderr, "\r\x1b[2K"+format, args...)
}

func (m *meter) end() {
	if isTerminal(os.Stderr) {
		fmt.Fprint(os.Stderr, "\r\x1b[2K")
	}
}

// report prints what a verb did, as JSON or as text behind the problems that it
// found. Problems end the process with code 1, everything having been said.
func report(g *global, value any, problems []tiering.Problem, text func()) error {
	if g.json() {
		if err := printJSON(os.Stdout, value); err != nil {
			return err
		}
	} else {
		for _, p := range problems {
			fmt.Println("PROBLEM", p)
		}
		text()
	}
	if len(problems) > 0 {
		return &exitError{1}
	}
	return nil
}

func archiveVerify(g *global) *cobra.Command {
	var at archiveAt
	var workers int
	c := &cobra.Command{
		Use:   "verify [TOPIC[:PARTITION]]",
		Short: "Read every archived object and check it",
		Long: `Reads every object that the archive serves from: manifests and their chain, pages,
indexes, and every segment; checks sizes, checksums, that each batch is whole, and
that no offset is missing. Prints every problem. The exit code is 0 if there is
none, 1 if there are some or the archive can't be read.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			store, err := at.store(c.Context())
			if err != nil {
				return err
			}
			var m meter
			o := tiering.VerifyOptions{Workers: workers, Progress: func(p tiering.VerifyProgress) {
				m.line("%s: %d of %d segments, %s", p.Partition, p.Segments, p.Total, bytesText(p.Bytes))
			}}
			if len(args) == 1 {
				if o.Topic, o.Partitions, err = splitPartition(args[0]); err != nil {
					return err
				}
			}
			start := time.Now()
			r, err := tiering.NewBucket(store).Verify(c.Context(), o)
			m.end()
			if err != nil {
				return err
			}
			return report(g, r, r.Problems, func() {
				fmt.Printf("%d topics, %d partitions, %d segments, %s, %s records verified in %.1f s; %d problems",
					r.Topics, r.Partitions, r.Segments, bytesText(r.Bytes), countText(r.Records), time.Since(start).Seconds(), len(r.Problems))
				if r.Orphans > 0 {
					fmt.Printf("; %d objects (%s) that nothing names wait for a sweep", r.Orphans, bytesText(r.OrphanBytes))
				}
				fmt.Println()
			})
		},
	}
	at.flags(c)
	c.Flags().IntVar(&workers, "workers", 4, "segments read at a time")
	return c
}

func archiveExtract(g *global) *cobra.Command {
	var at archiveAt
	var dir, from, until string
	c := &cobra.Command{
		Use:   "extract TOPIC[:PARTITION] --to DIR",
		Short: "Write archived segments back as Kafka's files",
		Long: `Writes .log, .index, .timeindex, .txnindex, .snapshot and leader-epoch-checkpoint of
archived segments below DIR/TOPIC-PARTITION, byte for byte as they were sealed, so
that Kafka's own tools read them. --from and --until choose whole segments: those
that hold anything of the range. A second run goes on where one was interrupted.`,
		Example: `  firn archive extract orders:0 --to /tmp/orders --from 2026-01-01 --until 2026-02-01
  kafka-dump-log.sh --files /tmp/orders/orders-0/00000000000000000000.log --deep-iteration`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if dir == "" {
				return errors.New("name the directory to write to with --to")
			}
			store, err := at.store(c.Context())
			if err != nil {
				return err
			}
			var m meter
			o := tiering.ExtractOptions{Dir: dir, Progress: func(p tiering.Partition, r tiering.ExtractReport) {
				m.line("%s: %d segments, %s", p, r.Segments, bytesText(r.Bytes))
			}}
			if o.Topic, o.Partitions, err = splitPartition(args[0]); err != nil {
				return err
			}
			if o.Range, err = parseRange(from, until); err != nil {
				return err
			}
			r, err := tiering.NewBucket(store).Extract(c.Context(), o)
			m.end()
			if err != nil {
				return err
			}
			return report(g, r, r.Problems, func() {
				if r.Segments+r.Kept == 0 {
					fmt.Println("no archived segment holds anything of that: nothing was written")
					return
				}
				fmt.Printf("%d segments of %d partitions, %s, in %s", r.Segments, r.Partitions, bytesText(r.Bytes), dir)
				if r.Kept > 0 {
					fmt.Printf("; %d were there already", r.Kept)
				}
				fmt.Println()
			})
		},
	}
	at.flags(c)
	c.Flags().StringVar(&dir, "to", "", "directory to write to")
	c.Flags().StringVar(&from, "from", "", "first offset or date")
	c.Flags().StringVar(&until, "until", "", "offset or date to stop before")
	return c
}

// parseRange reads --from and --until.
func parseRange(from, until string) (tiering.Range, error) {
	var r tiering.Range
	now := time.Now()
	f, err := parsePosition(from, now)
	if err != nil {
		return r, fmt.Errorf("--from: %w", err)
	}
	u, err := parsePosition(until, now)
	if err != nil {
		return r, fmt.Errorf("--until: %w", err)
	}
	r.FromOffset, r.BelowOffset = f.offset, u.offset
	if !f.byTime.IsZero() {
		r.FromTime = f.byTime.UnixMilli()
	}
	if !u.byTime.IsZero() {
		r.BelowTime = u.byTime.UnixMilli()
	}
	return r, nil
}

func archiveCopy(g *global) *cobra.Command {
	var from, to string
	var workers int
	c := &cobra.Command{
		Use:   "copy --from URL --to URL",
		Short: "Copy an archive to another store",
		Long: `Copies every object, verified on its way: data first, firn.json last, so that an
interrupted copy is no archive yet; the next run goes on with what is missing. The
copy has the same owner as the original: switch the broker over by archive.url
while it is stopped, and don't let two brokers write to the two.`,
		Example: `  firn archive copy --from file:///var/lib/firn/archive --to 's3://events?region=eu-central-1'`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if from == "" || to == "" {
				return errors.New("name both archives: --from URL --to URL")
			}
			src, err := openArchive(c.Context(), from)
			if err != nil {
				return fmt.Errorf("--from: %w", err)
			}
			dst, err := openStore(c.Context(), to, tiering.OpenOptions{})
			if err != nil {
				return fmt.Errorf("--to: %w", err)
			}
			var m meter
			r, err := tiering.Copy(c.Context(), src, dst, tiering.CopyOptions{Workers: workers, Progress: func(r tiering.CopyReport) {
				m.line("%d objects, %s copied, %d there already", r.Copied, bytesText(r.Bytes), r.Kept)
			}})
			m.end()
			if err != nil {
				return err
			}
			return report(g, r, r.Problems, func() {
				fmt.Printf("%d objects, %s copied; %d were there already\n", r.Copied, bytesText(r.Bytes), r.Kept)
			})
		},
	}
	c.Flags().StringVar(&from, "from", "", "the archive to copy")
	c.Flags().StringVar(&to, "to", "", "where to; create=true in the URL makes a missing bucket or directory")
	c.Flags().IntVar(&workers, "workers", 4, "objects copied at a time")
	return c
}
