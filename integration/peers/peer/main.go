package peer

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// CloseTimeout bounds each thing that a peer still does once it was told to end, which it must within 10 s.
const CloseTimeout = 5 * time.Second

// Options are the command line of a peer.
type Options struct {
	Brokers  []string
	MySQLDSN string
	StateDir string // exists when the peer runs
	Redis    string // host:port; empty where no Redis was given
	Log      *slog.Logger
}

// Parse reads a command line.
func Parse(args []string) (Options, error) {
	var o Options
	flags := flag.NewFlagSet("peer", flag.ContinueOnError)
	brokers := flags.String("brokers", "", "Kafka's addresses, `HOST:PORT[,HOST:PORT]`")
	flags.StringVar(&o.MySQLDSN, "mysql-dsn", "", "the database for like_count, as go-sql-driver/mysql names it")
	flags.StringVar(&o.StateDir, "state-dir", "", "a directory for local state")
	flags.StringVar(&o.Redis, "redis", "", "Redis's address, `HOST:PORT`")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("what is %q? Options only, see -help", flags.Arg(0))
	}
	if *brokers == "" || o.MySQLDSN == "" || o.StateDir == "" {
		return o, errors.New("give --brokers, --mysql-dsn and --state-dir")
	}
	o.Brokers = strings.Split(*brokers, ",")
	o.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	return o, nil
}

// Main is the main function of a peer. run counts until its context is done, which SIGTERM does, and then prints its
// state. Any error of it ends the process with code 1: what was read and not covered is read again by the next one.
func Main(run func(context.Context, Options, *Lines) error) {
	o, err := Parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(0)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[0], err)
		os.Exit(2)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	err = os.MkdirAll(o.StateDir, 0o755)
	if err == nil {
		err = run(ctx, o, NewLines(os.Stdout))
	}
	if err != nil {
		o.Log.Error("ended", "err", err)
		os.Exit(1)
	}
}
