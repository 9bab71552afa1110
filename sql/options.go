package sql

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// Options configure the connections to MySQL.
type Options struct {
	// DSN is user:password@tcp(host:port)/database?tls=true, as go-sql-driver/mysql parses it. Never print it.
	DSN     string `mapstructure:"dsn"`
	DSNFile string `mapstructure:"dsn_file"` // a file that contains the DSN; config reads it

	// MigrateDSN is for commands that create or alter tables (see OfMigrations), so that the user in DSN needs no more
	// than read and write access to rows. It defaults to DSN.
	MigrateDSN     string `mapstructure:"migrate_dsn"`
	MigrateDSNFile string `mapstructure:"migrate_dsn_file"`

	// Shards replaces DSN when several databases share the partitions. Of n databases, number i (from 0) has partition
	// p of every topic if p % n == i. The list and its order must not change. ShardsFile has one DSN per line.
	Shards     []string `mapstructure:"shards"`
	ShardsFile string   `mapstructure:"shards_file"`
	// MigrateShards corresponds to Shards as MigrateDSN corresponds to DSN.
	MigrateShards     []string `mapstructure:"migrate_shards"`
	MigrateShardsFile string   `mapstructure:"migrate_shards_file"`
	Shard             Shard    `mapstructure:"-"` // the index of DSN in Shards; Each sets it

	// TLS encrypts connections and verifies the server, whatever the DSN says, against the certificates in TLSCA or by
	// default the system's. TLSCert and TLSKey are the client certificate, for servers that require one. All are PEM
	// files and are read again for each connection. Without TLS, the tls=… of the DSN applies.
	TLS     bool   `mapstructure:"tls"`
	TLSCA   string `mapstructure:"tls_ca"`
	TLSCert string `mapstructure:"tls_cert"`
	TLSKey  string `mapstructure:"tls_key"`

	// SingleWriter says that all processes write to the same node of a cluster whose other nodes accept writes, too.
	SingleWriter bool `mapstructure:"single_writer"`

	// MaxOpenConns bounds the connections of this process to one server. Each busy partition needs one; further
	// partitions wait. 1 is allowed, and the right value for a server without row locks.
	MaxOpenConns int `mapstructure:"max_open_conns"`

	// ConnectTimeout bounds dialing and authentication, ReadTimeout the wait for any response of the server,
	// WriteTimeout any write to it. A COMMIT is bounded by them, not by the context.
	ConnectTimeout time.Duration `mapstructure:"connect_timeout"`
	ReadTimeout    time.Duration `mapstructure:"read_timeout"`
	WriteTimeout   time.Duration `mapstructure:"write_timeout"`

	// LockWaitTimeout is the innodb_lock_wait_timeout of the sessions, in whole seconds. It must be below ReadTimeout,
	// or a lock held by somebody else would look like a dead server. 0 keeps the server's default.
	LockWaitTimeout time.Duration `mapstructure:"lock_wait_timeout"`

	// IdleTimeout is the wait_timeout of the sessions, in whole seconds. After that long without a statement, the
	// server ends a session with its transaction and locks, so it bounds how long a paused process blocks others. 0
	// keeps the server's default.
	IdleTimeout time.Duration `mapstructure:"idle_timeout"`

	// Retries is how often a transaction is retried after a deadlock or a lock wait timeout before the caller gets the
	// error. The waits between retries grow from RetryBackoff to RetryBackoffMax, with jitter.
	Retries         int           `mapstructure:"retries"`
	RetryBackoff    time.Duration `mapstructure:"retry_backoff"`
	RetryBackoffMax time.Duration `mapstructure:"retry_backoff_max"`

	// MaxStatementBytes bounds the text of one statement, together with the server's max_allowed_packet.
	MaxStatementBytes int `mapstructure:"max_statement_bytes"`
}

const (
	minStatementBytes = 1 << 10
	maxStatementBytes = 1<<24 - 1024 // a statement must fit into one packet of the protocol
)

// DefaultOptions suit a server in the same data center. Only DSN or Shards has to be set.
func DefaultOptions() Options {
	return Options{
		Shards: []string{}, MigrateShards: []string{},
		MaxOpenConns:   16,
		ConnectTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second,
		LockWaitTimeout: 2 * time.Second, IdleTimeout: 30 * time.Second,
		Retries: 8, RetryBackoff: 10 * time.Millisecond, RetryBackoffMax: time.Second,
		// BenchmarkApply, 50,000 posts, MariaDB on the same two cores: the best runs took 232 to 237 ms with 64 to 512
		// KiB, and 259 ms with 8 KiB, less than the noise between runs. So the size hardly matters locally. 256 KiB are
		// some 10,000 posts per round trip, and below the default max_allowed_packet of every server.
		MaxStatementBytes: 256 << 10,
	}
}

// Validate reports every invalid setting, by its name in the configuration.
func (o Options) Validate() (err error) {
	if !o.HasServer() {
		_, err = parseDSN(o.DSN)
	}
	return errors.Join(err, o.ValidateOptional())
}

// ValidateOptional is Validate for commands that can run without a database.
func (o Options) ValidateOptional() error {
	var p problems
	o.validateDSNs(&p)
	p.add(o.files().Validate(o.TLS))
	p.addIf(o.MaxOpenConns < 1, "max_open_conns is %d; it must be at least 1", o.MaxOpenConns)
	p.addIf(o.ConnectTimeout <= 0, "connect_timeout is %s; it must be above 0", o.ConnectTimeout)
	p.addIf(o.ReadTimeout <= 0, "read_timeout is %s; it must be above 0", o.ReadTimeout)
	p.addIf(o.WriteTimeout <= 0, "write_timeout is %s; it must be above 0", o.WriteTimeout)
	p.addIf(!wholeSeconds(o.LockWaitTimeout),
		"lock_wait_timeout is %s; it must be whole seconds (0: the server's default)", o.LockWaitTimeout)
	p.addIf(o.LockWaitTimeout >= o.ReadTimeout,
		"lock_wait_timeout %s must be below read_timeout %s", o.LockWaitTimeout, o.ReadTimeout)
	p.addIf(!wholeSeconds(o.IdleTimeout),
		"idle_timeout is %s; it must be whole seconds (0: the server's default)", o.IdleTimeout)
	p.addIf(o.Retries < 0, "retries is %d; it must not be negative", o.Retries)
	p.addIf(o.RetryBackoff <= 0, "retry_backoff is %s; it must be above 0", o.RetryBackoff)
	p.addIf(o.RetryBackoffMax < o.RetryBackoff,
		"retry_backoff_max %s must not be below retry_backoff %s", o.RetryBackoffMax, o.RetryBackoff)
	p.addIf(o.MaxStatementBytes < minStatementBytes || o.MaxStatementBytes > maxStatementBytes,
		"max_statement_bytes is %d; it must be between %d and %d",
		o.MaxStatementBytes, minStatementBytes, maxStatementBytes)
	return errors.Join(p...)
}

type problems []error

func (p *problems) add(err error) { *p = append(*p, err) }

func (p *problems) addIf(wrong bool, format string, args ...any) {
	if wrong {
		p.add(fmt.Errorf(format, args...))
	}
}

// wholeSeconds accepts 0 as well.
func wholeSeconds(d time.Duration) bool { return d >= 0 && d%time.Second == 0 }

// LogValue omits the password.
func (o Options) LogValue() slog.Value {
	var servers []string
	for _, one := range o.Each() {
		servers = append(servers, one.server())
	}
	return slog.GroupValue(slog.String("server", strings.Join(servers, ", ")), slog.Bool("tls", o.TLS),
		slog.Int("max_open_conns", o.MaxOpenConns), slog.Int("max_statement_bytes", o.MaxStatementBytes))
}

const maxShards = 1024

// validateDSNs checks the given DSNs. Its errors never contain a DSN.
func (o Options) validateDSNs(p *problems) {
	one, several := o.DSN != "", len(o.Shards) > 0
	migrateOne, migrateSeveral := o.MigrateDSN != "", len(o.MigrateShards) > 0
	p.addIf(one && several, "dsn and shards are both set: set only one")
	p.addIf(migrateOne && migrateSeveral, "migrate_dsn and migrate_shards are both set: set only one")
	p.addIf(several && migrateOne, "migrate_dsn is one database, but shards lists several: set migrate_shards")
	p.addIf(one && migrateSeveral, "migrate_shards lists several databases, but dsn is one: set migrate_dsn")
	p.addIf(several && migrateSeveral && len(o.Shards) != len(o.MigrateShards),
		"shards lists %d databases, but migrate_shards lists %d: they must be the same, in the same order",
		len(o.Shards), len(o.MigrateShards))
	if one {
		_, err := parseDSN(o.DSN)
		p.add(err)
	}
	if _, err := parseDSN(o.MigrateDSN); err != nil && migrateOne {
		p.add(fmt.Errorf("migrate_%w", err))
	}
	place := validateShards(p, "shards", o.Shards)
	validateShards(p, "migrate_shards", o.MigrateShards)
	// A mismatch would make the databases reject what the other list recorded. Only server names are compared here.
	for i, dsn := range o.MigrateShards {
		name := serverName(dsn)
		other, known := place[name]
		p.addIf(known && other != i,
			"migrate_shards[%d] is shards[%d], %s: they must be the same, in the same order", i, other, name)
	}
}

// validateShards returns the index of each database in the list, by its name.
func validateShards(p *problems, key string, dsns []string) (place map[string]int) {
	if len(dsns) > maxShards {
		p.add(fmt.Errorf("%s lists %d databases; at most %d are allowed", key, len(dsns), maxShards))
		return nil
	}
	place = map[string]int{}
	for i, dsn := range dsns {
		if _, err := parseDSN(dsn); err != nil {
			p.add(fmt.Errorf("%s[%d]: %w", key, i, err))
			continue
		}
		name := serverName(dsn)
		other, twice := place[name]
		p.addIf(twice, "%s[%d] and %s[%d] are the same database, %s", key, other, key, i, name)
		place[name] = i
	}
	return place
}

// OfMigrations are the options for commands that create or alter tables: `kudos migrate` and `kudos rebuild`.
func (o Options) OfMigrations() Options {
	switch {
	case o.MigrateDSN != "":
		o.DSN = o.MigrateDSN
	case len(o.MigrateShards) > 0:
		o.Shards = o.MigrateShards
	}
	return o
}

// HasServer reports whether any database is configured.
func (o Options) HasServer() bool { return o.DSN != "" || len(o.Shards) > 0 }

// Each returns the options of each database, in shard order. A single database yields one element.
func (o Options) Each() []Options {
	if len(o.Shards) == 0 {
		return []Options{o}
	}
	each := make([]Options, len(o.Shards))
	for i, dsn := range o.Shards {
		each[i] = o
		each[i].DSN, each[i].Shard = dsn, Shard{int32(i), int32(len(o.Shards))}
		each[i].Shards, each[i].MigrateShards = nil, nil
	}
	return each
}

// server names the database for logs and errors, without user and password, plus its shard if there are several.
func (o Options) server() string {
	if o.Shard.Count() == 1 {
		return serverName(o.DSN)
	}
	return fmt.Sprintf("%s (%s)", serverName(o.DSN), o.Shard)
}
