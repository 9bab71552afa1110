package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kudos/config"
	"kudos/ranker"
	"kudos/schema"
)

func (a *app) excludeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "exclude POST…",
		Short: "Exclude posts from rankings",
		Long: `Exclude posts from rankings and leaderboards, in all regions and windows. Rankers apply it
as soon as they read it, and rewrite those rankings. Likes are still counted: "kudos ranker
include" puts a post back with all of its likes.

It returns once Kafka has acknowledged everything. Repeating it is harmless.`,
		Example: `  kudos ranker exclude 42 4711 --reason 'bought likes' --brokers kafka:9092`,
	}
	return a.exclusionRun(cmd, true, "excluded from rankings")
}

func (a *app) includeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "include POST…",
		Short: "Include excluded posts in rankings again",
		Long: `Include posts again that "kudos ranker exclude" has excluded from rankings. It returns once
Kafka has acknowledged everything. Repeating it is harmless, also for posts not excluded.`,
		Example: `  kudos ranker include 42 --reason 'appeal of 3 March' --brokers kafka:9092`,
	}
	return a.exclusionRun(cmd, false, "back in rankings")
}

func (a *app) exclusionRun(cmd *cobra.Command, excluded bool, deed string) *cobra.Command {
	var posts []uint64
	cmd.Args = func(cmd *cobra.Command, args []string) (err error) {
		posts, err = parseIDs(cmd.Name(), "post", args)
		return err
	}
	reason := cmd.Flags().String("reason", "", "reason, for people to read")
	out := addOutput(cmd)
	return addSettings(cmd, brokersFlag).run(func(ctx context.Context, cfg *config.Loaded, _ []string) error {
		e := schema.Exclusion{Excluded: excluded, Reason: *reason}
		done, err := ranker.Exclude(ctx, cfg.Kafka, posts, e, quietLogger(cfg, a.stderr))
		ids := strings.Fields(strings.Trim(fmt.Sprint(done), "[]")) // JavaScript numbers are exact up to 2^53 only
		text := deed + ": " + strings.Join(ids, ", ") + "\n"
		if len(done) == 0 {
			text = "" // the error says it all
		}
		return errors.Join(err, out.print(a.stdout, struct {
			Posts []string `json:"posts"`
			schema.Exclusion
		}{ids, e}, text))
	})
}

// parseIDs parses post or user ids and removes duplicates. The error names every invalid id.
func parseIDs(command, kind string, args []string) ([]uint64, error) {
	if len(args) == 0 {
		return nil, fmt.Errorf("%s takes the ids of %ss; none was given", command, kind)
	}
	var ids []uint64
	var errs []error
	seen := map[uint64]bool{}
	for _, arg := range args {
		id, err := strconv.ParseUint(arg, 10, 64)
		switch {
		case err != nil || id == 0:
			errs = append(errs, fmt.Errorf("%q is not a %s id: a whole number from 1 to 2^64-1", arg, kind))
		case !seen[id]:
			seen[id] = true
			ids = append(ids, id)
		}
	}
	return ids, errors.Join(errs...)
}

func (a *app) exclusionsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "exclusions",
		Short: "List the posts that are excluded from rankings",
		Long:  `List the posts that are currently excluded from rankings, with time and reason.`,
		Example: `  kudos ranker exclusions --brokers kafka:9092
  kudos ranker exclusions --output json | jq -r '.[].post_id'`,
	}
	out := addOutput(cmd)
	return addSettings(cmd, brokersFlag).run(func(ctx context.Context, cfg *config.Loaded, _ []string) error {
		excluded, err := ranker.Exclusions(ctx, cfg.Kafka, quietLogger(cfg, a.stderr))
		if err != nil {
			return err
		}
		excluded = append([]ranker.Excluded{}, excluded...) // encodes as [], not null
		return out.print(a.stdout, excluded, exclusionsText(excluded))
	})
}

func exclusionsText(excluded []ranker.Excluded) string {
	if len(excluded) == 0 {
		return "no post is excluded from rankings\n"
	}
	rows := []string{"POST\tEXCLUDED AT\tREASON"}
	for _, e := range excluded {
		rows = append(rows, fmt.Sprintf("%d\t%s\t%s", e.PostID, e.At.Format(time.RFC3339), oneLine(e.Reason)))
	}
	return aligned(rows)
}

// oneLine replaces control characters, so that text from others cannot break a table or the terminal.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if strconv.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
}

func (a *app) rankerResetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "Rebuild rankings from like-updates",
		Long: `Delete the rankers' own state (their state tables, trending-local and the offsets of their
groups), so that they restart from what like-updates holds: all updates of the last 7 days,
and the last update of each post. Use it if their state no longer belongs to like-updates.
Rankings that have been written stay, and so do exclusions.

It refuses to run while a ranker runs. It can be stopped at any point and run again.`,
		Example: `  kudos ranker reset --yes --brokers kafka:9092 && kudos topics apply --brokers kafka:9092`,
	}
	yes := addYes(cmd)
	return addSettings(cmd, brokersFlag).run(func(ctx context.Context, cfg *config.Loaded, _ []string) error {
		if err := a.canAsk(cmd, *yes); err != nil {
			return err
		}
		person := a.person("text", *yes)
		agreed, err := person.Agree("This deletes the rankers' state; they rebuild it from like-updates. Continue?")
		if err != nil || !agreed {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, topicsTimeout)
		defer cancel()
		if err := ranker.Reset(ctx, cfg.Kafka, quietLogger(cfg, a.stderr)); err != nil {
			return err
		}
		return person.Say("the rankers' state is deleted; next: run kudos topics apply, then start the rankers")
	})
}
