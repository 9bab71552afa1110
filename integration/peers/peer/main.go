// Package peer is what the peers of the benchmark have in common: their command line (main.go), the lines they print
// (lines.go), the reading of the topic likes (likes.go), and the table like_count that they all end with (counts.go).
//
// The topic is full when a peer starts. Counts go to MySQL, and one JSON object a line to stdout, from which the
// harness takes the times. A peer is two functions:
//
//	func main() { peer.Main(count, state) }
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

	"github.com/jmoiron/sqlx"
)

// CloseTimeout bounds each thing that a peer still does once it was told to end, which it must within 10 s.
const CloseTimeout = 5 * time.Second

// Peer is what a peer has to work with.
type Peer struct {
	Options
	DB    *sqlx.DB // with like_count
	Lines *Lines
}

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
	o := Options{Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	flags := flag.NewFlagSet("peer", flag.ContinueOnError)
	brokers := flags.String("brokers", "", "Kafka's addresses, `HOST:PORT[,HOST:PORT]`")
	flags.StringVar(&o.MySQLDSN, "mysql-dsn", "", "database for like_count, as a DSN of go-sql-driver/mysql")
	flags.StringVar(&o.StateDir, "state-dir", "", "directory for local state")
	flags.StringVar(&o.Redis, "redis", "", "Redis's address, `HOST:PORT`")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q; see -help", flags.Arg(0))
	}
	if *brokers == "" || o.MySQLDSN == "" || o.StateDir == "" {
		return o, errors.New("--brokers, --mysql-dsn and --state-dir are required")
	}
	o.Brokers = strings.Split(*brokers, ",")
	return o, nil
}

// State measures what a peer keeps to know who likes what, in bytes, and how many pairs that are.
type State func(context.Context, *Peer) (bytes, pairs int64, err error)

// Main is the main function of a peer. count counts until its context is done, which SIGTERM does; then state measures.
// Any error of either ends the process with code 1: what was read and not covered is read again by the next one.
func Main(count func(context.Context, *Peer) error, state State) {
	o, err := Parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(0)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[0], err)
		os.Exit(2)
	}
	if err := run(o, count, state); err != nil {
		o.Log.Error("ended", "err", err)
		os.Exit(1)
	}
}

func run(o Options, count func(context.Context, *Peer) error, state State) error {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := os.MkdirAll(o.StateDir, 0o755); err != nil {
		return err
	}
	db, err := openDatabase(ctx, o.MySQLDSN)
	if err != nil {
		return err
	}
	defer db.Close()
	p := &Peer{Options: o, DB: db, Lines: NewLines(os.Stdout)}
	if err := count(ctx, p); err != nil {
		return err
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), CloseTimeout)
	defer cancel()
	bytes, pairs, err := state(last, p)
	if err != nil {
		return err
	}
	return p.Lines.State(bytes, pairs)
}
