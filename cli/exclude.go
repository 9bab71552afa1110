package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"kudos/ranker"
	"kudos/schema"
)

func (a *app) excludeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "exclude POST…",
		Short: "Take posts out of rankings",
		Long: `Take posts out of rankings and leaderboards, all regions and windows. Rankers do it as soon
as they read of it, and write those rankings anew. Likes go on being counted: "kudos
ranker include" puts a post back with all it has.

It ends when Kafka has all of it. Doing it again does no harm.`,
		Example: `  kudos ranker exclude 42 4711 --reason 'bought likes' --brokers kafka:9092`,
	}
	return a.exclusionRun(cmd, true, "excluded from rankings")
}

func (a *app) includeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "include POST…",
		Short: "Put posts back into rankings",
		Long: `Put posts back that "kudos ranker exclude" took out of rankings. It ends when Kafka has all
of it. Doing it again does no harm, nor does it where a post was not excluded.`,
		Example: `  kudos ranker include 42 --reason 'appeal of 3 March' --brokers kafka:9092`,
	}
	return a.exclusionRun(cmd, false, "back in rankings")
}

// exclusionRun completes a command that writes one exclusion for many posts.
func (a *app) exclusionRun(cmd *cobra.Command, excluded bool, deed string) *cobra.Command {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		_, err := parseIDs(cmd.Name(), "post", args)
		return err
	}
	settings := addSettings(cmd, brokersFlag())
	reason := cmd.Flags().String("reason", "", "why, for people")
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cfg, err := settings.load()
		if err != nil {
			return err
		}
		posts, err := parseIDs(cmd.Name(), "post", args)
		if err != nil {
			return err
		}
		e := schema.Exclusion{Excluded: excluded, Reason: *reason}
		done, err := ranker.Exclude(cmd.Context(), cfg.Kafka, posts, e, quietLogger(cfg, a.stderr))
		return errors.Join(err, printDone(a.stdout, *out, done, e, deed))
	}
	return cmd
}

// parseIDs reads the ids of posts or users, each once. It tells of all that are none.
func parseIDs(command, kind string, args []string) ([]uint64, error) {
	if len(args) == 0 {
		return nil, fmt.Errorf("%s takes the ids of %ss; none was given", command, kind)
	}
	var ids []uint64
	var errs []error
	seen := map[uint64]bool{}
	for _, arg := range args {
		id, err := strconv.ParseUint(arg, 10, 64)
		if err != nil || id == 0 {
			errs = append(errs, fmt.Errorf("%q is no %s id: a whole number from 1 to 2^64-1", arg, kind))
			continue
		}
		if !seen[id] {
			ids = append(ids, id)
		}
		seen[id] = true
	}
	return ids, errors.Join(errs...)
}

// printDone says what was done, also where it was not all.
func printDone(w io.Writer, format output, posts []uint64, e schema.Exclusion, deed string) error {
	texts := make([]string, len(posts)) // ids as text: a browser's numbers end at 2^53
	for i, post := range posts {
		texts[i] = strconv.FormatUint(post, 10)
	}
	if format == "json" {
		return json.NewEncoder(w).Encode(struct {
			Posts []string `json:"posts"`
			schema.Exclusion
		}{texts, e})
	}
	if len(posts) == 0 {
		return nil // the error says it all
	}
	_, err := fmt.Fprintf(w, "%s: %s\n", deed, strings.Join(texts, ", "))
	return err
}

func (a *app) exclusionsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "exclusions",
		Short: "List the posts that are taken out of rankings",
		Long:  `List the posts that are taken out of rankings now, with the reason that was given and when.`,
		Example: `  kudos ranker exclusions --brokers kafka:9092
  kudos ranker exclusions --output json | jq -r '.[].post_id'`,
		Args: cobra.NoArgs,
	}
	settings := addSettings(cmd, brokersFlag())
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := settings.load()
		if err != nil {
			return err
		}
		excluded, err := ranker.Exclusions(cmd.Context(), cfg.Kafka, quietLogger(cfg, a.stderr))
		if err != nil {
			return err
		}
		return printExclusions(a.stdout, *out, excluded)
	}
	return cmd
}

func printExclusions(w io.Writer, format output, excluded []ranker.Excluded) error {
	if format == "json" {
		if excluded == nil {
			excluded = []ranker.Excluded{} // [] and not null
		}
		return json.NewEncoder(w).Encode(excluded)
	}
	if len(excluded) == 0 {
		_, err := fmt.Fprintln(w, "no post is excluded from rankings")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "POST\tEXCLUDED AT\tREASON") // errors of writes come with Flush
	for _, e := range excluded {
		fmt.Fprintf(t, "%d\t%s\t%s\n", e.PostID, e.At.Format(time.RFC3339), oneLine(e.Reason))
	}
	return t.Flush()
}

// oneLine keeps what somebody else wrote from spoiling a table or a terminal.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if strconv.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
}
