package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"kudos/ops/topics"
	"kudos/schema"
	"kudos/stream/kafka"
)

// topicsTimeout bounds setting up or checking all topics.
const topicsTimeout = 2 * time.Minute

func (a *app) topicsCommand() *cobra.Command {
	return group("topics", "Set up the topics in Kafka, check them, or add partitions", a.topicsApplyCommand(), a.topicsCheckCommand(), a.topicsRepartitionCommand())
}

func (a *app) topicsApplyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "apply",
		Short: "Create the topics and set them as they must be",
		Long: `Create the topics that are missing, correct settings that differ, and write the first
progress record of each partition. Doing it again changes nothing; a retention that was
made longer stays.

The partition count (topics.partitions) decides where a post lives, so this does not change
it: "kudos topics repartition" adds partitions.`,
		Example: `  kudos topics apply --brokers kafka:9092

  # One broker, to play with
  kudos topics apply --set topics.replication_factor=1 --set topics.partitions=4`,
		Args: cobra.NoArgs,
	}
	return a.topicsRun(cmd, topics.Apply, "topics are as they must be already", false)
}

func (a *app) topicsCheckCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Compare the topics with how they must be",
		Long: `Compare the topics with how they must be, and print each difference with what mends it.
It changes nothing. Exit code 1 if there is a difference.`,
		Example: `  kudos topics check --brokers kafka:9092`,
		Args:    cobra.NoArgs,
	}
	return a.topicsRun(cmd, topics.Check, "topics are as they must be", true)
}

type topicsFunc func(context.Context, kafka.Options, schema.Layout, int16, *slog.Logger) (*topics.Report, error)

// topicsRun completes a command that reports on topics. failOnLines: a line in the
// report is a fault and not a deed.
func (a *app) topicsRun(cmd *cobra.Command, run topicsFunc, nothing string, failOnLines bool) *cobra.Command {
	settings := addSettings(cmd, brokersFlag())
	out := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := settings.load()
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), topicsTimeout)
		defer cancel()
		report, err := run(ctx, cfg.Kafka, cfg.Topics.Layout(), cfg.Topics.ReplicationFactor, quietLogger(cfg, a.stderr))
		if report != nil {
			err = errors.Join(err, a.printReport(report, *out, nothing, err == nil))
		}
		if err == nil && failOnLines && len(report.Lines) > 0 {
			err = fmt.Errorf("%d differences", len(report.Lines))
		}
		return err
	}
	return cmd
}

func (a *app) printReport(r *topics.Report, format output, nothing string, done bool) error {
	if format == "json" {
		if r.Lines == nil {
			r.Lines = []string{} // [] and not null
		}
		return json.NewEncoder(a.stdout).Encode(r)
	}
	for _, line := range r.Lines {
		fmt.Fprintln(a.stdout, line)
	}
	if len(r.Lines) == 0 && done {
		fmt.Fprintln(a.stdout, nothing)
	}
	return nil
}
