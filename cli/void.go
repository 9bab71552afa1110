package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"kudos/config"
	"kudos/ops/void"
)

func (a *app) voidCommand() *cobra.Command {
	return group("void", "Take all reactions of users (bots) out of the counts",
		a.voidUsers(true, &cobra.Command{
			Use:   "users FILE|-",
			Short: "Take all reactions of users out of counts, hours and rankings",
			Long: `Take all reactions of users out of counts, hours, rankings and lists of likers, for as
long as they are voided: what they do later is kept, too, and does not count. They see
their own reactions as before. "kudos unvoid users" takes it back, exactly.

FILE has an id per line; lines that begin with # are ignored. It works through events in
likes: counts follow within seconds, while other likes arrive. It reads the whole state
table and waits until the processors have counted everything. It can be stopped at any
point and run again.

Topics of earlier versions are prepared by the first run: each partition pauses for some ten
seconds, and processors and readers of those versions refuse it from then on. Upgrade first.`,
			Example: `  kudos void users bots.txt --brokers kafka:9092
  psql -c "COPY (SELECT id FROM users WHERE bot) TO STDOUT" | kudos void users -`,
		}),
		a.voidListCommand())
}

func (a *app) unvoidCommand() *cobra.Command {
	return group("unvoid", "Make the reactions of voided users count again",
		a.voidUsers(false, &cobra.Command{
			Use:   "users FILE|-",
			Short: "Make the reactions of voided users count again",
			Long: `Make the reactions of users that "kudos void" took out count again: those from before,
in the hours and regions of then, and those that came since.

FILE has an id per line; lines that begin with # are ignored.`,
			Example: `  kudos unvoid users appealed.txt --brokers kafka:9092
  kudos void list | kudos unvoid users - # all of them`,
		}))
}

func (a *app) voidUsers(voids bool, cmd *cobra.Command) *cobra.Command {
	opts := void.DefaultOptions()
	opts.Void = voids
	cmd.Args = cobra.ExactArgs(1)
	cmd.Flags().DurationVar(&opts.Timeout, "timeout", opts.Timeout,
		"how long the processors may count nothing of what was sent")
	out := addOutput(cmd)
	return addSettings(cmd, brokersFlag).run(func(ctx context.Context, cfg *config.Loaded, args []string) (err error) {
		if opts.Users, err = a.readIDs(args[0]); err != nil {
			return usageError{err}
		}
		if err := opts.Validate(); err != nil {
			return usageError{err}
		}
		opts.Begin, opts.Layout = a.progress(cmd.Parent().Name()).Begin, cfg.Topics.Layout()
		report, err := void.Run(ctx, opts, cfg.Kafka, quietLogger(cfg, a.stderr))
		return errors.Join(err, out.print(a.stdout, report, voidText(report)))
	})
}

func voidText(r *void.Report) string {
	if !r.Complete {
		return ""
	}
	counts := "count again"
	if r.Void {
		counts = "do not count"
	}
	return fmt.Sprintf("%s: their reactions %s; %s sent, in %s\n", plural(int64(r.Users), "user"), counts,
		plural(r.Recounts, "recount"), took(r.Seconds))
}

// readIDs reads user ids, one a line.
func (a *app) readIDs(name string) (ids []uint64, err error) {
	in := io.Reader(a.stdin)
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	seen, lines := map[uint64]bool{}, bufio.NewScanner(in)
	for n := 1; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" || text[0] == '#' {
			continue
		}
		id, err := strconv.ParseUint(text, 10, 64)
		switch {
		case err != nil || id == 0:
			return nil, fmt.Errorf("%s line %d: %.40q is not a user id: a whole number from 1 to 2^64-1", name, n, text)
		case len(ids) == void.MaxUsers:
			return nil, fmt.Errorf("%s has more than %d users, the limit of one run; split it", name, void.MaxUsers)
		case !seen[id]:
			seen[id] = true
			ids = append(ids, id)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("%s has no user ids", name)
	}
	return ids, nil
}

func (a *app) voidListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the users whose reactions do not count",
		Long: `List the users whose reactions do not count, an id per line. Reads the whole state table.

A run of "kudos void" or "kudos unvoid" that was stopped may have left earlier reactions as
they were: run it again until it says that it is done.`,
		Example: `  kudos void list --brokers kafka:9092
  kudos void list --output json | jq '.incomplete'`,
		Args: cobra.NoArgs,
	}
	out := addOutput(cmd)
	return addSettings(cmd, brokersFlag).run(func(ctx context.Context, cfg *config.Loaded, _ []string) error {
		list, err := void.ReadList(ctx, cfg.Kafka, a.progress("void list").Begin, quietLogger(cfg, a.stderr))
		if err != nil {
			return err
		}
		var text strings.Builder
		for _, user := range list.Users {
			fmt.Fprintln(&text, user)
		}
		if n := len(list.Incomplete); n > 0 {
			fmt.Fprintf(&text, "# %d of them in some partitions only: run void or unvoid again\n", n)
		}
		return out.print(a.stdout, list, text.String())
	})
}
