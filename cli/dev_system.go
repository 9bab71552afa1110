//go:build !nodev

package cli

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"golang.org/x/sync/errgroup"

	"kudos/config"
	"kudos/dev"
	"kudos/httpserver/admin"
	"kudos/ops/topics"
	"kudos/processor"
	"kudos/producer"
	"kudos/ranker"
	"kudos/reader"
	"kudos/sql"
)

// devSystem is `kudos dev`: three layers, each of which outlives the one above it.
//
//	simulator, status line              the top: it ends first
//	producer, reader, … , admin         as in production
//	Kafka, MySQL, trimmer, compactor    embedded, or somebody else's
type devSystem struct {
	data    devData // with --data-dir
	cfg     config.Config
	flags   devFlags
	console *dev.Console
	log     *slog.Logger
	banner  dev.Banner // filled as the parts come up
	hooks   dev.Hooks
	// undo is what is taken away at the end, last first.
	undo []func() error
}

const (
	// devReadyTimeout bounds the start: seconds on a slow machine.
	devReadyTimeout = 2 * time.Minute
	devReadyPoll    = 20 * time.Millisecond
	// devCacheBytes and devBufferBytes are enough for what the simulator does; three roles
	// share a laptop here, and larger ones would fill for an hour.
	devCacheBytes  = 8 << 20
	devBufferBytes = 16 << 20
)

func newDevSystem(a *app, cfg *config.Loaded, flags devFlags) *devSystem {
	d := &devSystem{cfg: cfg.Config, flags: flags, console: dev.NewConsole(a.stdout, isTerminal(a.stdout))}
	// Where both are one terminal, log lines go above the status line.
	d.log = quietLogger(cfg, a.stderr)
	if isTerminal(a.stdout) && isTerminal(a.stderr) {
		if cfg.Log.Format == "auto" {
			cfg.Log.Format = "text" // the console is the terminal
		}
		d.log = quietLogger(cfg, d.console)
	}
	if !realKafka(cfg) {
		quickRankings(cfg, &d.cfg.Ranker)
	}
	d.banner = dev.Banner{
		EmbeddedKafka: !realKafka(cfg), EmbeddedMySQL: !realMySQL(cfg), DataDir: flags.dataDir, Rate: flags.simulate,
	}
	return d
}

// quickRankings has a like show in rankings within seconds of it, where nobody said otherwise.
// In production rankings wait for likes that come late, and for partitions where nothing
// comes; here none comes late, and a person looks on. Not on a Kafka of your own: all its
// rankers must have the same settings, and there may be others.
func quickRankings(cfg *config.Loaded, o *ranker.Options) {
	set := func(key string, option *time.Duration, value time.Duration) {
		if cfg.Origin("ranker."+key).Kind == "default" {
			*option = value
		}
	}
	set("allowed_lateness", &o.AllowedLateness, 0)
	set("idle_after", &o.IdleAfter, 2*time.Second)
	set("emit_interval", &o.EmitInterval, 5*time.Second)
	// The embedded database writes whole tables back: with a hundred places for each
	// region and window the counts would wait for it.
	if cfg.Origin("ranker.top_n").Kind == "default" {
		o.TopN = 20
	}
}

func (d *devSystem) run(ctx context.Context) (err error) {
	defer func() {
		for i := len(d.undo) - 1; i >= 0; i-- {
			err = errors.Join(err, d.undo[i]())
		}
	}()
	if d.flags.readyFile != "" { // of an earlier run that died
		if err := dev.RemoveReady(d.flags.readyFile); err != nil {
			return err
		}
	}
	servers, err := d.startServers()
	if err != nil {
		return err
	}
	return runOver(ctx, d.runRoles, servers...)
}

// startServers starts the embedded servers and returns what runs them to their end.
func (d *devSystem) startServers() (servers []work, err error) {
	defer func() {
		if err != nil {
			for _, w := range servers {
				err = errors.Join(err, w(stopped()))
			}
		}
	}()
	d.banner.Kafka = strings.Join(d.cfg.Kafka.Brokers, ",")
	if d.banner.EmbeddedKafka {
		opts := dev.DefaultBrokerOptions()
		opts.Address = d.flags.kafkaAddr
		if opts.DataDir, err = d.directories(); err != nil {
			return servers, err
		}
		broker := dev.NewBroker(opts, d.log)
		if err := broker.Start(); err != nil {
			return servers, err
		}
		servers = append(servers, broker.Run)
		d.cfg.Kafka.Brokers = []string{broker.Address()}
		d.cfg.Topics.ReplicationFactor = 1
		d.banner.Kafka = broker.Address()
		servers = append(servers,
			dev.NewTrimmer(dev.DefaultTrimmerOptions(), d.cfg.Kafka, d.log).Run,
			dev.NewCompactor(dev.DefaultCompactorOptions(), broker, d.cfg.Kafka, d.log).Run)
	}
	if d.banner.EmbeddedMySQL {
		opts := dev.DefaultDatabaseOptions()
		opts.Address = d.flags.mysqlAddr
		database := dev.NewDatabase(opts, d.log)
		if err := database.Start(); err != nil {
			return servers, err
		}
		servers = append(servers, database.Run)
		return servers, d.useDatabase(database)
	}
	var addresses []string
	for _, one := range d.cfg.MySQL.Each() {
		dsn, err := mysql.ParseDSN(one.DSN)
		if err != nil {
			return servers, errors.New("mysql.dsn cannot be read") // the driver's words may hold the password
		}
		addresses = append(addresses, dsn.Addr)
	}
	d.banner.MySQL = strings.Join(addresses, ",")
	return servers, nil
}

// directories chooses where the roles' local copies of their tables are, and returns where the
// embedded broker has its data: a directory that goes on exit, or that of --data-dir.
// The copies always begin empty: the broker has all that they are made of.
func (d *devSystem) directories() (kafka string, err error) {
	var state string
	if d.flags.dataDir == "" {
		if state, err = os.MkdirTemp("", "kudos-dev-state-"); err != nil {
			return "", fmt.Errorf("folder for the state tables: %w", err)
		}
		kafka = filepath.Join(state, "kafka")
	} else {
		data, done, err := openDevData(d.flags.dataDir)
		if err != nil {
			return "", err
		}
		d.data = data
		d.undo = append(d.undo, done)
		kafka, state = data.kafka(), data.state()
		if err := os.RemoveAll(state); err != nil { // of a run that was killed
			return "", fmt.Errorf("--data-dir: %w", err)
		}
	}
	d.undo = append(d.undo, func() error { return os.RemoveAll(state) })
	d.cfg.Processor.StateDir = filepath.Join(state, "processor")
	d.cfg.Ranker.StateDir = filepath.Join(state, "ranker")
	d.cfg.Reader.StateDir = filepath.Join(state, "reader")
	for _, cache := range []*int64{&d.cfg.Processor.CacheBytes, &d.cfg.Ranker.CacheBytes, &d.cfg.Reader.CacheBytes} {
		*cache = min(*cache, devCacheBytes)
	}
	d.cfg.Processor.BufferBytes = min(d.cfg.Processor.BufferBytes, devBufferBytes)
	return kafka, nil
}

// useDatabase points the settings at the embedded database, and the status line at a
// connection of its own.
func (d *devSystem) useDatabase(database *dev.Database) error {
	d.cfg.MySQL.DSN = database.DSN()
	d.cfg.MySQL.MaxOpenConns = 1 // it has no row locks
	d.banner.MySQL = database.Address()
	db, err := stdsql.Open("mysql", database.DSN())
	if err != nil {
		return fmt.Errorf("status of the embedded MySQL: %w", err)
	}
	d.undo = append(d.undo, db.Close)
	d.hooks.Applied = func(ctx context.Context) (likes int64, err error) {
		err = db.QueryRowContext(ctx, "SELECT CAST(COALESCE(SUM(count), 0) AS SIGNED) FROM like_count").Scan(&likes)
		return likes, err
	}
	return nil
}

// runRoles sets topics and tables up, and runs every role as production does.
func (d *devSystem) runRoles(ctx context.Context) (err error) {
	if err := d.setUp(ctx); err != nil {
		return err
	}
	reg := observe(&d.cfg)
	db, err := sql.Open(d.cfg.MySQL, d.log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	reg.MustRegister(db.Collectors()...)
	likesIn, readsOut, err := d.listen(ctx)
	if err != nil {
		return err
	}
	defer func() { // those who serve on them close them too
		_, _ = likesIn.Close(), readsOut.Close()
	}()
	p, err := processor.New(d.cfg.Processor, d.cfg.Kafka, db, d.log, reg)
	if err != nil {
		return err
	}
	d.cfg.Producer.UserBuckets = d.cfg.Topics.Layout().UserBuckets()
	api, err := producer.New(d.cfg.Producer, d.cfg.Kafka, d.log, reg)
	if err != nil {
		return err
	}
	r, err := ranker.New(d.cfg.Ranker, d.cfg.Kafka, db, d.log, reg)
	if err != nil {
		return err
	}
	reads, err := reader.New(d.cfg.Reader, d.cfg.Kafka, db, d.log, reg)
	if err != nil {
		return err
	}
	checks := []admin.Check{
		checkOf("producer", api), checkOf("processor", p), checkOf("ranker", r), checkOf("reader", reads), notStopping(ctx),
	}
	adm := admin.New(d.cfg.Admin, reg, checks, d.log)
	d.hooks.Lag = func(context.Context) (int64, error) { return p.Lag(), nil }
	show := func(ctx context.Context) error {
		if err := waitUp(ctx, checks, api.Listening(), reads.Listening(), adm.Listening()); err != nil {
			return d.data.explain(ctx, err)
		}
		d.banner.HTTP, d.banner.Reader, d.banner.Admin = api.Addr(), reads.Addr(), adm.Addr()
		return d.show(ctx)
	}
	return runOver(ctx, show,
		func(ctx context.Context) error { return api.Serve(ctx, likesIn) },
		func(ctx context.Context) error { return reads.Serve(ctx, readsOut) },
		p.Run, r.Run, adm.Run)
}

// listen takes the addresses of producer and reader, of which each has to know the
// other's: the page with the like button, and where that sends its likes.
func (d *devSystem) listen(ctx context.Context) (likesIn, readsOut net.Listener, err error) {
	var lc net.ListenConfig
	if likesIn, err = lc.Listen(ctx, "tcp", d.cfg.Producer.HTTPAddr); err != nil {
		return nil, nil, fmt.Errorf("producer: listening on %s (--http-addr): %w", d.cfg.Producer.HTTPAddr, err)
	}
	if readsOut, err = lc.Listen(ctx, "tcp", d.cfg.Reader.HTTPAddr); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("reader: listening on %s (--reader-addr): %w", d.cfg.Reader.HTTPAddr, err), likesIn.Close())
	}
	if d.cfg.Reader.ProducerURL == "" {
		d.cfg.Reader.ProducerURL = "http://" + likesIn.Addr().String()
		_, port, err := net.SplitHostPort(readsOut.Addr().String())
		if err != nil {
			return nil, nil, errors.Join(err, likesIn.Close(), readsOut.Close())
		}
		for _, host := range []string{"127.0.0.1", "localhost"} {
			d.cfg.Producer.Origins = append(d.cfg.Producer.Origins, "http://"+net.JoinHostPort(host, port))
		}
	}
	return likesIn, readsOut, nil
}

func (d *devSystem) setUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, devReadyTimeout)
	defer cancel()
	if d.data.killed {
		if err := dev.EndKilledTransactions(ctx, d.cfg.Kafka, d.log); err != nil {
			return err
		}
	}
	if err := sql.Migrate(ctx, d.cfg.MySQL.OfMigrations(), d.log); err != nil {
		return err
	}
	if _, err := topics.Apply(ctx, d.cfg.Kafka, d.cfg.Topics.Layout(), d.cfg.Topics.ReplicationFactor, d.log); err != nil {
		return fmt.Errorf("topics: %w", err)
	}
	return d.data.restore(ctx, d.cfg, d.log)
}

// waitUp waits until all servers listen and every check passes.
func waitUp(ctx context.Context, checks []admin.Check, listening ...<-chan struct{}) error {
	timeout := time.After(devReadyTimeout)
	tick := time.NewTicker(devReadyPoll)
	defer tick.Stop()
	for _, one := range listening {
		select {
		case <-one:
		case <-ctx.Done():
			return nil
		case <-timeout:
			return fmt.Errorf("not listening after %s", devReadyTimeout)
		}
	}
	for {
		var errs []error
		for _, c := range checks {
			errs = append(errs, c.Ready())
		}
		err := errors.Join(errs...)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		case <-timeout:
			return fmt.Errorf("not ready after %s: %w", devReadyTimeout, err)
		}
	}
}

// show tells where everything is, and how it goes until ctx ends.
func (d *devSystem) show(ctx context.Context) (err error) {
	if ctx.Err() != nil {
		return nil
	}
	if path := d.flags.readyFile; path != "" {
		if err := dev.WriteReady(path, d.banner.Addresses); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, dev.RemoveReady(path)) }()
	}
	if err := d.banner.Print(d.console); err != nil {
		return fmt.Errorf("print where everything listens: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	if d.flags.simulate > 0 {
		opts := dev.DefaultSimulatorOptions()
		opts.Rate, opts.HTTPAddress = d.flags.simulate, d.banner.HTTP
		simulator := dev.NewSimulator(opts, d.cfg.Kafka, d.log)
		d.hooks.Published = simulator.Counts
		group.Go(func() error { return simulator.Run(ctx) })
	}
	status := dev.NewStatus(d.console, d.hooks)
	group.Go(func() error { return status.Run(ctx) })
	return group.Wait()
}
