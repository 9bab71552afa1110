package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"kudos/config"
	"kudos/ops/transactions"
)

func (a *app) transactionsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "transactions",
		Short: "List or abort open transactions, which hide new records",
		Long: `List the open transactions in kudos' topics. While one is open, no consumer sees the records
after its first one. Its coordinator aborts it after its timeout; a hanging one, which no
coordinator knows, stays open. --abort drops its records: it fences the transactional id, so
that the writer gets an error if it continues, or writes the markers of a hanging one.
Processes of kudos end their own.`,
		Example: `  kudos transactions --abort 4000 --brokers kafka:9092`,
	}
	abort := cmd.Flags().Int64("abort", -1, "abort the open transaction of this producer id")
	yes := addYes(cmd)
	force := cmd.Flags().Bool("force", false, "also fence a process of kudos, which then resumes")
	maxTimeout := cmd.Flags().Duration("max-timeout", transactions.MaxTimeout,
		"transaction.max.timeout.ms of the brokers: an older transaction that no coordinator knows hangs")
	out := addOutput(cmd)
	return addSettings(cmd, brokersFlag).run(func(ctx context.Context, cfg *config.Loaded, _ []string) error {
		if err := a.canAsk(cmd, *yes || *abort < 0); err != nil {
			return err
		}
		log := quietLogger(cfg, a.stderr)
		cl, err := cfg.Kafka.NewClient(log)
		if err != nil {
			return err
		}
		defer cl.Close()
		open, err := transactions.List(ctx, cl, *maxTimeout)
		if err != nil {
			return err
		}
		if *abort < 0 {
			text := ""
			for _, o := range open {
				text += fmt.Sprintln(o)
			}
			return out.print(a.stdout, open, cmp.Or(text, "no transaction is open\n"))
		}
		i := slices.IndexFunc(open, func(o transactions.Open) bool { return o.ProducerID == *abort })
		if i < 0 {
			return fmt.Errorf("producer %d has no open transaction; kudos transactions lists all", *abort)
		}
		person := a.person(*out, *yes)
		if agreed, err := person.Agree(fmt.Sprintf("This aborts the transaction of %s. Continue?", open[i])); !agreed {
			return err
		}
		if err := transactions.Abort(ctx, cl, cfg.Kafka, log, open[i], *force); err != nil {
			return fmt.Errorf("aborting the transaction of producer %d: %w", *abort, err)
		}
		return person.Say("the transaction is aborted")
	})
}
