package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"kudos/sql"
)

func (a *app) migrateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the tables in MySQL up to date",
		Long: `Bring the tables in MySQL (8.0 or later) or MariaDB (10.11 or later) up to date.

The database must exist, and the user may CREATE and ALTER in it: that of
mysql.migrate_dsn, if there is one, so that the roles' own need not. Doing it again
changes nothing; several at once take turns. Run it before a new version's processors.

Each database records which of mysql.shards it is, mysql.dsn that it is the only one. From
then on another list is refused, by all that use it.`,
		Example: `  kudos migrate --mysql-dsn 'kudos:secret@tcp(db:3306)/kudos'

  # The password not on the command line
  KUDOS_MYSQL_DSN='kudos:secret@tcp(db:3306)/kudos' kudos migrate
  KUDOS_MYSQL_MIGRATE_DSN_FILE=/run/secrets/migrate-dsn kudos migrate`,
		Args: cobra.NoArgs,
	}
	settings := addSettings(cmd, mysqlFlag())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := settings.load()
		if err != nil {
			return err
		}
		cfg.MySQL = cfg.MySQL.OfMigrations()
		if err := errors.Join(cfg.RequireMySQL(), cfg.MySQL.CheckFiles()); err != nil {
			return usageError{err}
		}
		return sql.Migrate(cmd.Context(), cfg.MySQL, a.logger(cfg))
	}
	return cmd
}
