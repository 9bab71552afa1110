// Command stack runs real servers to experiment with: one Kafka cluster and one MariaDB (or MySQL) server, on free
// loopback ports, until Ctrl-C. They start empty, and their data is removed at the end. `make stack` runs it.
//
// With -fetch it only downloads what comes from Maven into this machine's cache.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"kudos/integration/stack"
)

type options struct {
	dir                string
	nodes              int
	keep, mysql, fetch bool
}

func main() {
	var o options
	flag.StringVar(&o.dir, "dir", "",
		"existing `directory` for the data directories (default: the system's temporary directory)")
	flag.IntVar(&o.nodes, "nodes", 1, "Kafka nodes, each a broker and controller: 1 or 3")
	flag.BoolVar(&o.keep, "keep", false, "keep data and logs at the end")
	flag.BoolVar(&o.mysql, "mysql", false, "MySQL instead of MariaDB")
	flag.BoolVar(&o.fetch, "fetch", false, "only download Kafka's jars and, with -mysql, the MySQL server")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "stack: unexpected argument %q: only flags are accepted, see -help\n", flag.Arg(0))
		os.Exit(2)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := run(ctx, o); err != nil {
		fmt.Fprintf(os.Stderr, "stack: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if o.fetch {
		return stack.Fetch(ctx, log, o.mysql)
	}
	k, err := stack.StartKafka(ctx, stack.KafkaOptions{Dir: o.dir, Nodes: o.nodes, Keep: o.keep, Log: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.Close()) }()
	startDatabase := stack.StartMariaDB
	if o.mysql {
		startDatabase = stack.StartMySQL
	}
	db, err := startDatabase(ctx, stack.DatabaseOptions{Dir: o.dir, Keep: o.keep, Log: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := db.CreateDatabase(ctx, "kudos"); err != nil {
		return err
	}
	explain(os.Stdout, k, db)
	return wait(ctx, append(k.Nodes(), db.Server))
}

func explain(w io.Writer, k *stack.Kafka, db *stack.Database) {
	host, port, _ := strings.Cut(db.Address(), ":")
	fmt.Fprintf(w, `
Kafka   %[1]s
SQL     %[2]s
logs    %[3]s/node-*/server.log
        %[4]s

export KUDOS_KAFKA_BROKERS=%[1]s
export KUDOS_MYSQL_DSN='%[2]s'
export KUDOS_TOPICS_REPLICATION_FACTOR=%[8]d

go run . topics apply
go run . migrate
go run . processor
go run . producer
kcat -b %[5]s -L
mariadb -h %[6]s -P %[7]s -u root kudos

Ctrl-C stops everything and deletes the data, unless -keep is set.
`, strings.Join(k.Brokers(), ","), db.DSN("kudos"), k.Dir(), db.LogPath(), k.Brokers()[0], host, port, len(k.Nodes()))
}

func wait(ctx context.Context, servers []*stack.Server) error {
	gone := make(chan *stack.Server, len(servers))
	for _, s := range servers {
		go func() { // ends with its server, which Close ends
			<-s.Done()
			gone <- s
		}()
	}
	select {
	case <-ctx.Done():
		return nil
	case s := <-gone:
		return fmt.Errorf("%s exited unexpectedly:\n%s", s, s.LogTail())
	}
}
