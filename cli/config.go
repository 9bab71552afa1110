package cli

import "github.com/spf13/cobra"

func (a *app) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show every setting, and where its value came from",
		Long: `Show every setting as the other commands would see it, and where its value came
from: flag, env, file or default. Passwords are masked.

config/kudos.example.yaml in the source says what each setting is for. A setting is
given in a file (--config), in the environment (kafka.client_id is
KUDOS_KAFKA_CLIENT_ID) or by flag (--set kafka.client_id=likes).`,
		Example: `  kudos config --config kudos.yaml
  kudos config --output json | jq '.[] | select(.from != "default")'`,
		Args: cobra.NoArgs,
	}
	settings := addSettings(cmd, brokersFlag(), mysqlFlag())
	out := addOutput(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		cfg, err := settings.load()
		if err != nil {
			return err
		}
		if *out == "json" {
			return cfg.WriteJSON(a.stdout)
		}
		return cfg.WriteTable(a.stdout)
	}
	return cmd
}
