//go:build !nodev

package cli

import (
	"cmp"
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"golang.org/x/sync/errgroup"

	"kudos/config"
	"kudos/dev"
	"kudos/httpserver"
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
//	simulator, status line              top: ends first
//	producer, reader, … , admin         as in production
//	Kafka, MySQL                        embedded, or external servers
type devSystem struct {
	data    devData // of the embedded broker
	cfg     config.Config
	flags   devFlags
	console *dev.Console
	log     *slog.Logger
	broker  *dev.Broker // nil if Kafka is external
	banner  dev.Banner  // filled in as the parts start
	hooks   dev.Hooks
	undo    []func() error // cleanup, run last first
}

const (
	devReadyTimeout = 2 * time.Minute // of the start, which takes seconds on a slow machine
	devReadyPoll    = 20 * time.Millisecond
	// devCacheBytes and devBufferBytes suffice for the simulator: three roles share a laptop; large caches fill slowly.
	devCacheBytes  = 8 << 20
	devBufferBytes = 16 << 20
)

func newDevSystem(a *app, cfg *config.Loaded, flags devFlags) *devSystem {
	d := &devSystem{cfg: cfg.Config, flags: flags, console: dev.NewConsole(a.stdout, isTerminal(a.stdout))}
	d.log = quietLogger(cfg, a.stderr)
	if isTerminal(a.stdout) && isTerminal(a.stderr) { // one terminal: log lines go above the status line
		if cfg.Log.Format == "auto" {
			cfg.Log.Format = "text" // the console is the terminal
		}
		d.log = quietLogger(cfg, d.console)
	}
	if !realKafka(cfg) {
		quickRankings(cfg, &d.cfg.Ranker)
	}
	d.banner = dev.Banner{EmbeddedKafka: !realKafka(cfg), EmbeddedMySQL: !realMySQL(cfg), DataDir: flags.dataDir,
		Rate: flags.simulate}
	return d
}

// quickRankings makes likes appear in rankings within seconds, unless a setting says otherwise. In production a ranking
// waits for late likes and for idle partitions; here no like is late, and somebody is watching. It does not apply to an
// external Kafka: all rankers of a cluster need the same settings, and others may run there.
func quickRankings(cfg *config.Loaded, o *ranker.Options) {
	set := func(key string, option *time.Duration, value time.Duration) {
		if cfg.Origin("ranker."+key).Kind == "default" {
			*option = value
		}
	}
	set("allowed_lateness", &o.AllowedLateness, 0)
	set("idle_after", &o.IdleAfter, 2*time.Second)
	set("emit_interval", &o.EmitInterval, 5*time.Second)
	// The embedded database rewrites whole tables: 100 posts for each region and window would delay the counts.
	if cfg.Origin("ranker.top_n").Kind == "default" {
		o.TopN = 20
	}
}

func (d *devSystem) run(ctx context.Context) (err error) {
	defer func() {
		for _, undo := range slices.Backward(d.undo) {
			err = errors.Join(err, undo())
		}
	}()
	if d.flags.readyFile != "" { // left by an earlier run that died
		if err := dev.RemoveReady(d.flags.readyFile); err != nil {
			return err
		}
	}
	servers, err := d.startServers()
	top := d.runRoles
	if err != nil {
		top = func(context.Context) error { return err } // shuts down the servers already started
	}
	return runOver(ctx, top, servers...)
}

// startServers starts the embedded servers. Each returned work runs one until its end.
func (d *devSystem) startServers() (servers []work, err error) {
	if d.banner.EmbeddedKafka {
		dataDir, err := d.directories()
		if err != nil {
			return nil, err
		}
		if d.broker, err = dev.StartBroker(d.flags.kafkaAddr, dataDir, d.log); err != nil {
			return nil, err
		}
		servers = append(servers, d.broker.Run)
		d.cfg.Kafka.Brokers = []string{d.broker.Address()}
		d.cfg.Topics.ReplicationFactor = 1
		d.cfg.Topics.Regions = append(d.cfg.Topics.Regions, "US-CA") // the generator has it
	}
	d.banner.Kafka = strings.Join(d.cfg.Kafka.Brokers, ",")
	if d.banner.EmbeddedMySQL {
		database, err := dev.StartDatabase(d.flags.mysqlAddr)
		if err != nil {
			return servers, err
		}
		return append(servers, database.Run), d.useDatabase(database)
	}
	var addresses []string
	for _, one := range d.cfg.MySQL.Each() {
		dsn, err := mysql.ParseDSN(one.DSN)
		if err != nil {
			return servers, errors.New("mysql.dsn cannot be parsed") // the driver's error may contain the password
		}
		addresses = append(addresses, dsn.Addr)
	}
	d.banner.MySQL = strings.Join(addresses, ",")
	return servers, nil
}

// directories sets the roles' state directories, always empty at the start, and returns the directory of the embedded
// broker. Both are in --data-dir, or in a temporary directory that is deleted on exit.
func (d *devSystem) directories() (kafka string, err error) {
	dir := d.flags.dataDir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "kudos-dev-state-"); err != nil {
			return "", fmt.Errorf("data directory: %w", err)
		}
		d.undo = append(d.undo, func() error { return os.RemoveAll(dir) })
	}
	data, done, err := openDevData(dir)
	if err != nil {
		return "", err
	}
	d.data = data
	d.undo = append(d.undo, done)
	state := data.path("state")
	if err := os.RemoveAll(state); err != nil { // left by a killed run
		return "", fmt.Errorf("data directory: %w", err)
	}
	d.undo = append(d.undo, func() error { return os.RemoveAll(state) })
	d.cfg.Processor.StateDir = filepath.Join(state, "processor")
	d.cfg.Ranker.StateDir = filepath.Join(state, "ranker")
	d.cfg.Reader.StateDir = filepath.Join(state, "reader")
	d.cfg.Reader.History = cmp.Or(d.cfg.Reader.History, 7*24*time.Hour)
	for _, cache := range []*int64{&d.cfg.Processor.CacheBytes, &d.cfg.Ranker.CacheBytes, &d.cfg.Reader.CacheBytes} {
		*cache = min(*cache, devCacheBytes)
	}
	d.cfg.Processor.BufferBytes = min(d.cfg.Processor.BufferBytes, devBufferBytes)
	return data.path("kafka"), nil
}

// useDatabase points the settings at the embedded database, and gives the status line its own connection to it.
func (d *devSystem) useDatabase(database *dev.Database) error {
	d.cfg.MySQL.DSN = database.DSN()
	d.cfg.MySQL.MaxOpenConns = 1 // the embedded database has no row locks
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
	likesIn, err := listen(ctx, "producer", d.cfg.Producer.HTTPAddr, "--http-addr")
	if err != nil {
		return err
	}
	defer likesIn.Close() // the server that serves on it closes it too
	readsOut, err := listen(ctx, "reader", d.cfg.Reader.HTTPAddr, "--reader-addr")
	if err != nil {
		return err
	}
	defer readsOut.Close()
	d.addLikeButton(likesIn.Addr(), readsOut.Addr())
	if len(d.cfg.Reader.AdminURLs) == 0 && !strings.HasSuffix(d.cfg.Admin.Addr, ":0") {
		d.cfg.Reader.AdminURLs = []string{"http://" + d.cfg.Admin.Addr}
	}
	d.cfg.Producer.UserBuckets = d.cfg.Topics.Layout().UserBuckets()
	api, err := producer.New(d.cfg.Producer, d.cfg.Kafka, d.log, reg)
	p, errP := processor.New(d.cfg.Processor, d.cfg.Kafka, db, d.log, reg)
	r, errR := ranker.New(d.cfg.Ranker, d.cfg.Kafka, db, d.log, reg)
	reads, errReads := reader.New(d.cfg.Reader, d.cfg.Kafka, db, d.log, reg)
	if err := errors.Join(err, errP, errR, errReads); err != nil {
		return err
	}
	checks := checksOf(ctx,
		namedRole{"producer", api}, namedRole{"processor", p}, namedRole{"ranker", r}, namedRole{"reader", reads})
	adm := admin.New(d.cfg.Admin, reg, checks, d.log)
	for _, server := range []*httpserver.Server{api.Server, reads.Server, adm.Server} {
		server.RejectOtherHosts()
	}
	d.hooks.Lag = func(context.Context) (int64, error) { return p.Lag(), nil }
	show := func(ctx context.Context) error {
		if err := waitUp(ctx, checks, api, reads, adm); err != nil {
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

func listen(ctx context.Context, role, address, flag string) (net.Listener, error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%s: listening on %s (%s): %w", role, address, flag, err)
	}
	return ln, nil
}

// addLikeButton gives the reader's page a like button: the producer's address, and its origin allowed at the producer.
func (d *devSystem) addLikeButton(producer, reader net.Addr) {
	if d.cfg.Reader.ProducerURL != "" {
		return
	}
	d.cfg.Reader.ProducerURL = "http://" + producer.String()
	port := strconv.Itoa(reader.(*net.TCPAddr).Port)
	d.cfg.Producer.Origins = append(d.cfg.Producer.Origins, "http://127.0.0.1:"+port, "http://localhost:"+port)
}

func (d *devSystem) setUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, devReadyTimeout)
	defer cancel()
	if d.data.killed {
		if err := d.broker.EndKilledTransactions(ctx); err != nil {
			return err
		}
	}
	if err := sql.Migrate(ctx, d.cfg.MySQL.OfMigrations(), d.log); err != nil {
		return err
	}
	d.cfg.Topics.KeepRegions = !d.banner.EmbeddedKafka // those of a cluster that others use, too
	if _, err := topics.Apply(ctx, d.cfg.Kafka, d.cfg.Topics, d.log); err != nil {
		return fmt.Errorf("topics: %w", err)
	}
	return d.data.restore(ctx, d.cfg, d.log)
}

func waitUp(ctx context.Context, checks []admin.Check, servers ...interface{ Addr() string }) error {
	for deadline := time.Now().Add(devReadyTimeout); ctx.Err() == nil; time.Sleep(devReadyPoll) {
		var errs []error
		for _, c := range checks {
			errs = append(errs, c.Ready())
		}
		for _, s := range servers {
			if s.Addr() == "" {
				errs = append(errs, errors.New("not listening"))
			}
		}
		err := errors.Join(errs...)
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not ready after %s: %w", devReadyTimeout, err)
		}
	}
	return nil
}

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
		return fmt.Errorf("printing the addresses: %w", err)
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
