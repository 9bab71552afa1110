package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"kudos/httpserver/admin"
)

// HealthTimeout is shorter than the time that container engines give a check.
const HealthTimeout = 5 * time.Second

func (a *app) healthCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask a role on this machine whether it is ready",
		Long: `Ask the role that runs on this machine whether it is ready: GET /readyz at admin.addr, for
where there is no shell and no HTTP client, as in kudos' own image. Exit code 0 if it is;
otherwise 1, and what is not ready, why, and what helps.

It finds the role by admin.addr, so give it the settings that the role has. It tells
whether there is work that cannot be done, which a restart seldom mends: to find out
whether a process still lives, look at /livez.`,
		Example: `  kudos health
  kudos health --admin-addr 127.0.0.1:9091

  # In docker-compose.yml
  healthcheck: {test: ["CMD", "/usr/local/bin/kudos", "health"]}`,
		Args: cobra.NoArgs,
	}
	settings := addSettings(cmd, shortFlag{name: "admin-addr", key: "admin.addr", usage: "where the role's admin server listens"})
	timeout := cmd.Flags().Duration("timeout", HealthTimeout, "longest wait for the answer")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := settings.load()
		if err != nil {
			return err
		}
		if *timeout <= 0 {
			return usageError{fmt.Errorf("--timeout %s: must be above zero", *timeout)}
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), *timeout)
		defer cancel()
		if err := admin.Ask(ctx, cfg.Admin.Addr); err != nil {
			return err
		}
		_, err = fmt.Fprintln(a.stdout, "ready")
		return err
	}
	return cmd
}
