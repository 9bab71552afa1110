package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"kudos/ranker"
)

func (a *app) rankerResetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "Have rankings made anew from like-updates",
		Long: `Delete what the rankers have made for themselves (their state tables, trending-local and the
positions of their groups), so that they begin anew with what like-updates holds: all of the
last 7 days, and of each post the last update. That is the remedy where their state does not
belong to like-updates any more. Rankings that were written stay, and so do exclusions.

It refuses while a ranker runs. It can be stopped at any point and run again.`,
		Example: `  kudos ranker reset --yes --brokers kafka:9092 && kudos topics apply --brokers kafka:9092`,
		Args:    cobra.NoArgs,
	}
	settings := addSettings(cmd, brokersFlag())
	yes := cmd.Flags().Bool("yes", false, "do not ask")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := settings.load()
		if err != nil {
			return err
		}
		if !*yes && !readsTerminal(a.stdin) {
			return usageError{errors.New("nobody is here to say yes: give --yes")}
		}
		person := &person{in: a.stdin, out: a.stdout, yes: *yes}
		agreed, err := person.Agree("The rankers' state is deleted, and made anew from like-updates. Go on?")
		if err != nil || !agreed {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), topicsTimeout)
		defer cancel()
		if err := ranker.Reset(ctx, cfg.Kafka, quietLogger(cfg, a.stderr)); err != nil {
			return err
		}
		return person.Say("the rankers' state is gone; next: kudos topics apply, then start the rankers")
	}
	return cmd
}
