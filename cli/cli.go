// Package cli holds the commands of kudos. Each command loads its configuration (flags, KUDOS_… variables, a file),
// builds the parts it needs and runs them. Exit codes: 0 success, 1 failure, 2 usage error, 3 audit or conform found a
// difference.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"kudos/archive"
	"kudos/producer/bridge"
	"kudos/sql"
)

const (
	exitDone      = 0
	exitFailed    = 1
	exitUsage     = 2
	exitDifferent = 3
)

type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	extras         Extras
}

// Extras are what only cli/full and cli/lake build in: parts that take long to compile, or depend on much.
type Extras struct {
	OpenRegistry func(bridge.RegistryOptions) (bridge.Registry, error)
	OpenBucket   func(archive.Options) (archive.Store, error)
	OpenTable    func(archive.Options, sql.Options, *slog.Logger) (archive.Table, error)
}

// Main runs the command in the program's arguments and returns its exit code.
func Main(extras Extras) int {
	ctx, stop := signalContext(os.Stderr, os.Exit)
	defer stop()
	return (&app{os.Stdin, os.Stdout, os.Stderr, extras}).run(ctx, os.Args[1:])
}

// Root returns the command tree, for tests of the files shipped with the program.
func Root() *cobra.Command { return (&app{}).rootCommand() }

// usageError is an error in the command line or in the configuration.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// differentError is returned by a check that ran to its end and found a difference.
type differentError struct{ error }

func (e differentError) Unwrap() error { return e.error }

// run executes one command. Only run prints errors.
func (a *app) run(ctx context.Context, args []string) (code int) {
	root := a.rootCommand()
	root.SetArgs(args)
	// An error before PersistentPreRun is cobra's complaint about the command line.
	began := false
	root.PersistentPreRun = func(*cobra.Command, []string) { began = true }
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitDone
	}
	fmt.Fprintf(a.stderr, "kudos: %v\n", err)
	switch {
	case !began || errors.As(err, new(usageError)):
		fmt.Fprintf(a.stderr, "See '%s --help'.\n", cmd.CommandPath())
		return exitUsage
	case errors.As(err, new(differentError)):
		return exitDifferent
	}
	return exitFailed
}

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "kudos",
		Short: "Counts likes exactly, on Kafka and MySQL alone",
		Long: `kudos counts likes exactly, on Kafka and MySQL alone.

A like is an event that sets the desired state: LIKE, DISLIKE, or UNLIKE for none.
Events may arrive twice, late or out of order: the latest action of a user on a post,
by event time, decides.

Settings come from flags, then from KUDOS_… variables, then from --config FILE, then
from defaults; "kudos config" shows the effective values and where they came from.

Exit codes: 0 success, 1 failure, 2 usage error, 3 "kudos audit" or "kudos conform" found a
difference.`,
		Example: `  # Try it, with nothing installed
  kudos dev --simulate 2000

  # Against real servers
  kudos migrate      --mysql-dsn 'kudos:secret@tcp(db:3306)/kudos'
  kudos topics apply --brokers kafka:9092
  kudos processor    --brokers kafka:9092 --mysql-dsn 'kudos:secret@tcp(db:3306)/kudos'
  kudos producer     --brokers kafka:9092
  kudos ranker       --brokers kafka:9092 --mysql-dsn 'kudos:secret@tcp(db:3306)/kudos'
  kudos reader       --brokers kafka:9092 --mysql-dsn 'kudos:secret@tcp(db:3306)/kudos'
  curl -X PUT http://127.0.0.1:8080/v1/posts/1/likes/42`,
		SilenceErrors: true, SilenceUsage: true,
	}
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.AddGroup(&cobra.Group{ID: "roles", Title: "Run:"}, &cobra.Group{ID: "setup", Title: "Setup and data:"},
		&cobra.Group{ID: "repair", Title: "Verify and repair:"}, &cobra.Group{ID: "about", Title: "Inspect:"})
	root.SetHelpCommandGroupID("about")
	root.SetCompletionCommandGroupID("about")
	add := func(group string, cmds ...*cobra.Command) {
		for _, cmd := range cmds {
			cmd.GroupID = group
		}
		root.AddCommand(cmds...)
	}
	add("roles", a.devCommands()...)
	add("roles", a.producerCommand(), a.processorCommand(), a.rankerCommand(), a.readerCommand(), a.archiveCommand(),
		a.bridgeCommand(), a.notifyCommand())
	add("setup", a.migrateCommand(), a.topicsCommand(), a.importCommand(), a.forgetCommand(),
		a.voidCommand(), a.unvoidCommand())
	add("repair", a.auditCommand(), a.rebuildCommand(), a.transactionsCommand())
	add("about", a.benchCommand(), a.conformCommand(), a.trendingCommand(), a.whereCommand(), a.healthCommand(),
		a.configCommand(), a.versionCommand())
	return root
}

// group is a command that only has subcommands. Cobra alone would exit 0 for a subcommand that does not exist.
func group(use, short string, cmds ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return usageError{fmt.Errorf("%s needs a command", cmd.CommandPath())}
	}
	cmd.AddCommand(cmds...)
	return cmd
}
