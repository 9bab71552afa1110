package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"kudos/config"
	"kudos/ops/forget"
	"kudos/schema"
)

const forgetLong = `

Each current reaction is withdrawn by an event, like one that the user would send, so
counts, rankings and views follow. Then it waits until the processors have counted all
events, and checks whether any reaction is left: those that arrived in the meantime are
withdrawn, too, up to a few times. Before you run it, stop your product from writing new
ones: kudos does not reject likes of these posts or users.

At the end it reports what remains, where and for how long: Kafka keeps the events for
the retention of their topic, and the record "no reaction" is kept indefinitely.

It can be stopped at any point and run again; reactions already withdrawn are skipped.
Exit code 0 only if nothing is left, or after a --dry-run, which changes nothing.`

func (a *app) forgetCommand() *cobra.Command {
	return group("forget", "Withdraw all reactions to a post, or of a user",
		a.forgetRun(forget.Post, &cobra.Command{
			Use:   "post ID…",
			Short: "Withdraw all reactions to deleted posts",
			Long:  `Withdraw all reactions to deleted posts.` + forgetLong,
			Example: `  kudos forget post 42 --dry-run --brokers kafka:9092
  kudos forget post 42 4711 --yes --brokers kafka:9092`,
		}),
		a.forgetRun(forget.User, &cobra.Command{
			Use:   "user ID…",
			Short: "Withdraw all reactions of deleted users",
			Long:  `Withdraw all reactions of deleted users. Reads the whole state table.` + forgetLong,
			Example: `  kudos forget user 7 --dry-run --brokers kafka:9092
  kudos forget user 7 --yes --brokers kafka:9092 --output json | jq '.remains[] | select(.user_ids)'`,
		}))
}

func (a *app) forgetRun(kind forget.Kind, cmd *cobra.Command) *cobra.Command {
	opts := forget.DefaultOptions()
	opts.Kind = kind
	cmd.Args = func(cmd *cobra.Command, args []string) (err error) {
		opts.IDs, err = parseIDs(cmd.CommandPath(), string(kind), args)
		return err
	}
	cmd.Flags().BoolVar(&opts.DryRun, "dry-run", false, "only report what would be withdrawn")
	yes := addYes(cmd)
	cmd.Flags().DurationVar(&opts.Timeout, "timeout", opts.Timeout,
		"how long the processors may count nothing of what was withdrawn")
	out := addOutput(cmd)
	return addSettings(cmd, brokersFlag).run(func(ctx context.Context, cfg *config.Loaded, _ []string) error {
		agreed := *yes || opts.DryRun
		if err := errors.Join(a.canAsk(cmd, agreed), opts.Validate()); err != nil {
			return usageError{err}
		}
		question := fmt.Sprintf("This withdraws all reactions of %s %s, for good. Continue?", kind,
			strings.Trim(fmt.Sprint(opts.IDs), "[]"))
		agreed, err := a.person(*out, agreed).Agree(question)
		if err != nil || !agreed {
			return err
		}
		opts.Begin, opts.Layout = a.progress("forget").Begin, cfg.Topics.Layout()
		report, err := forget.Run(ctx, opts, cfg.Kafka, quietLogger(cfg, a.stderr))
		return errors.Join(err, out.print(a.stdout, report, forgottenText(report)))
	})
}

func forgottenText(r *forget.Report) string {
	whom := fmt.Sprintf("%s %s", r.Kind, strings.Join(r.IDs, ", "))
	var text strings.Builder
	switch {
	case len(r.Remains) == 0 && r.Rounds == 0:
		return "" // it failed before it started; the error says why
	case r.DryRun:
		fmt.Fprintf(&text, "%s: %s would be withdrawn; nothing was changed\n", whom, reactions(r.Left))
	case r.Complete:
		fmt.Fprintf(&text, "%s: withdrew %s in %s; nothing is left\n", whom, reactions(r.Withdrawn), took(r.Seconds))
	default:
		fmt.Fprintf(&text, "%s: withdrew %s in %s; %s are left\n",
			whom, reactions(r.Withdrawn), took(r.Seconds), reactions(r.Left))
	}
	if len(r.Remains) > 0 {
		text.WriteString("\nwhat remains:\n")
	}
	for _, m := range r.Remains {
		users := "no user ids"
		if m.UserIDs {
			users = "with user ids"
		}
		if m.Records != nil {
			users = plural(*m.Records, "record") + ", " + users
		}
		fmt.Fprintf(&text, "  %s (%s)\n    %s\n    kept %s\n", m.Where, users, m.What, m.Kept)
	}
	return text.String()
}

func reactions(c schema.Counts) string {
	return plural(c.Likes, "like") + " and " + plural(c.Dislikes, "dislike")
}

func plural(n int64, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
