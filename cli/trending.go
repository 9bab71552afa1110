package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kudos/config"
	"kudos/ops/progress"
	"kudos/ranker"
	"kudos/schema"
)

func (a *app) trendingCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trending",
		Short: "Show trending posts: those with the most likes in a window",
		Long: `Show the latest ranking of a region and window: the posts with the most likes, best first,
and how each has moved since the previous ranking.

Windows are those of ranker.windows, and the leaderboards: day (today, UTC) and all (of all
time). "kudos ranker" writes rankings to Kafka, only when they change; they are kept for
7 days. docs/trending.md in the source defines what counts.

--follow shows each new ranking, until Ctrl-C: on a terminal in place of the last one,
elsewhere below it. --output json prints each as stored in Kafka, one per line.`,
		Example: `  kudos trending --brokers kafka:9092
  kudos trending --region DE --window 10m --follow
  kudos trending --window all --output json | jq -r '.posts[:3][].post_id'`,
	}
	region := cmd.Flags().String("region", schema.GlobalName, "ISO 3166 code (DE, US-CA), or global for all regions")
	window := cmd.Flags().String("window", "",
		"10m, 1h, … as configured, day or all (default: 1h if configured, else the first of ranker.windows)")
	follow := cmd.Flags().Bool("follow", false, "show each new ranking, until Ctrl-C")
	out := addOutput(cmd)
	settings := addSettings(cmd, brokersFlag)
	complete(cmd, "region", 0, settings.regions)
	complete(cmd, "window", 0, settings.windows)
	return settings.run(func(ctx context.Context, cfg *config.Loaded, _ []string) error {
		t := &trending{a: a, cfg: cfg, follow: *follow}
		var errRegion, errWindow error
		t.region, errRegion = regionOf(*region)
		t.window, errWindow = windowOf(*window, cmd.Flags().Changed("window"), cfg.Ranker.Windows)
		if err := errors.Join(errRegion, errWindow); err != nil {
			return usageError{err}
		}
		t.view = newTrendingView(a.stdout, *out, *follow && isTerminal(a.stdout))
		return t.run(ctx)
	})
}

func regionOf(flag string) (string, error) {
	if strings.EqualFold(flag, schema.GlobalName) {
		return schema.GlobalName, nil
	}
	region, wellFormed := schema.ParseRegion(flag)
	if !wellFormed || flag == "" {
		return "", fmt.Errorf("--region %q is neither global nor an ISO 3166 code such as DE or US-CA", flag)
	}
	return schema.RankingRegion(region), nil
}

// windowOf parses --window. Whether the rankers have it, only their output can tell: their settings may differ.
func windowOf(flag string, given bool, configured []time.Duration) (string, error) {
	if !given {
		if slices.Contains(configured, time.Hour) {
			return schema.WindowName(time.Hour), nil
		}
		return schema.WindowName(configured[0]), nil
	}
	if schema.IsLeaderboard(flag) {
		return flag, nil
	}
	size, err := time.ParseDuration(flag)
	if err != nil || size < time.Minute || size%time.Minute != 0 {
		return "", fmt.Errorf("--window %q is not a window: use %s, day, all, "+
			"or another size in whole minutes that the rankers have configured", flag, windowNames(configured))
	}
	return schema.WindowName(size), nil
}

func windowNames(sizes []time.Duration) string {
	names := make([]string, len(sizes))
	for i, size := range sizes {
		names[i] = schema.WindowName(size)
	}
	return strings.Join(names, ", ")
}

type trending struct {
	a              *app
	cfg            *config.Loaded
	region, window string
	follow         bool
	view           *trendingView
}

func (t *trending) run(ctx context.Context) error {
	rankings, err := ranker.OpenRankings(ctx, t.cfg.Kafka, t.region, t.window, quietLogger(t.cfg, t.a.stderr))
	if err == nil {
		defer rankings.Close()
		err = t.latest(ctx, rankings)
	}
	if err == nil && t.follow {
		err = rankings.Follow(ctx, func(w *ranker.WrittenRanking) error {
			if w == nil {
				return t.view.refresh(time.Now())
			}
			return t.view.show(w, time.Now())
		})
	}
	if t.follow && ctx.Err() != nil {
		return nil // Ctrl-C is the normal end of --follow
	}
	return err
}

// latest shows the last ranking. If there is none it fails or, with --follow, prints what it waits for.
func (t *trending) latest(ctx context.Context, rankings *ranker.Rankings) error {
	end := t.showProgress(rankings)
	latest, err := rankings.Latest(ctx)
	end()
	if err != nil {
		return err
	}
	if latest != nil {
		return t.view.show(latest, time.Now())
	}
	others, err := rankings.Any(ctx)
	if err != nil {
		return err
	}
	why := t.whyNone(others)
	if !t.follow {
		return errors.New(why)
	}
	_, err = fmt.Fprintf(t.a.stderr, "%s\nWaiting for the first one, until Ctrl-C.\n", why)
	return err
}

// whyNone explains a missing ranking and says what to do. others: the topic has other rankings.
func (t *trending) whyNone(others bool) string {
	if !others {
		return fmt.Sprintf(`topic %s on %v has no ranking at all.
Either no ranker is running (start one: kudos ranker), or it has received no likes: check
it with "kudos health", and check that a processor is running.`,
			schema.TopicTrending, t.cfg.Kafka.Brokers)
	}
	why := "there were no likes in the last 7 days, for which rankings are kept"
	if !schema.IsLeaderboard(t.window) {
		why += fmt.Sprintf(",\nor the rankers have no window of %s (ranker.windows; here: %s)",
			t.window, windowNames(t.cfg.Ranker.Windows))
	}
	return fmt.Sprintf("topic %s has no ranking of %s, but has others:\n%s.\n"+
		"Try: kudos trending --region global --window all",
		schema.TopicTrending, schema.RankingKey(t.region, t.window), why)
}

// showProgress shows the progress of the search for a ranking if it takes more than a second, until end is called.
func (t *trending) showProgress(rankings *ranker.Rankings) (end func()) {
	const quick = time.Second
	printer := t.a.progress("trending")
	began, shown := time.Now(), int64(0)
	var phase *progress.Phase
	rankings.Progress = func(read, all int64) {
		if phase == nil && time.Since(began) >= quick {
			phase = printer.Begin("searching for the ranking", "records", all)
		}
		if phase != nil {
			phase.Add(read - shown)
			shown = read
		}
	}
	return func() {
		if phase != nil {
			phase.End()
		}
	}
}
