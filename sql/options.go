package sql

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// Options of the connection to MySQL.
type Options struct {
	// DSN is user:password@tcp(host:port)/database?tls=true, as go-sql-driver/mysql reads it. It holds a password:
	// never print it.
	DSN string `mapstructure:"dsn"`
	// DSNFile is a file that holds it, from which config reads it.
	DSNFile string `mapstructure:"dsn_file"`

	// MigrateDSN is for whoever makes and changes tables (OfMigrations), so that DSN may be of a user who reads and
	// writes rows and nothing else. Empty: DSN.
	MigrateDSN     string `mapstructure:"migrate_dsn"`
	MigrateDSNFile string `mapstructure:"migrate_dsn_file"`

	// Shards, in place of DSN, are the DSNs of several databases that share the partitions: of so many, number i (from
	// 0) has partition p of each topic if p modulo their number is i. Which and in what order must not change.
	// ShardsFile has one a line.
	Shards     []string `mapstructure:"shards"`
	ShardsFile string   `mapstructure:"shards_file"`
	// MigrateShards is to Shards what MigrateDSN is to DSN.
	MigrateShards     []string `mapstructure:"migrate_shards"`
	MigrateShardsFile string   `mapstructure:"migrate_shards_file"`
	// Shard is the place of DSN among those; Each sets it.
	Shard Shard `mapstructure:"-"`

	// TLS has connections encrypted and the server verified, by the certificates in TLSCA, or else by those that the
	// system trusts, whatever the DSN says. TLSCert and TLSKey are the client's own, for servers that want one. All are
	// PEM files, and read anew for each connection. Without TLS the DSN's own tls=… holds.
	TLS     bool   `mapstructure:"tls"`
	TLSCA   string `mapstructure:"tls_ca"`
	TLSCert string `mapstructure:"tls_cert"`
	TLSKey  string `mapstructure:"tls_key"`

	// MaxOpenConns bounds the connections of this process to a server. Each busy partition needs one; the others wait
	// for it. 1 is allowed, and right for a server without row locks.
	MaxOpenConns int `mapstructure:"max_open_conns"`

	// ConnectTimeout bounds dialling and logging in, ReadTimeout the wait for any answer of the server, WriteTimeout
	// any write to it. They, not the context, bound a COMMIT.
	ConnectTimeout time.Duration `mapstructure:"connect_timeout"`
	ReadTimeout    time.Duration `mapstructure:"read_timeout"`
	WriteTimeout   time.Duration `mapstructure:"write_timeout"`

	// LockWaitTimeout is innodb_lock_wait_timeout of the sessions, in whole seconds. Below ReadTimeout, or a lock held
	// by somebody else would look like a dead server. 0 leaves it to the server.
	LockWaitTimeout time.Duration `mapstructure:"lock_wait_timeout"`

	// IdleTimeout is wait_timeout of the sessions, in whole seconds: after that long without a statement the server
	// ends a session, its transaction and its locks. It bounds how long a paused process can hold the others up.
	// 0 leaves it to the server.
	IdleTimeout time.Duration `mapstructure:"idle_timeout"`

	// Retries is how often a transaction is repeated after a deadlock or a lock wait timeout, before the caller gets
	// the error. The waits between grow from RetryBackoff to RetryBackoffMax, with jitter.
	Retries         int           `mapstructure:"retries"`
	RetryBackoff    time.Duration `mapstructure:"retry_backoff"`
	RetryBackoffMax time.Duration `mapstructure:"retry_backoff_max"`

	// MaxStatementBytes bounds the text of one statement. The server's max_allowed_packet bounds it too.
	MaxStatementBytes int `mapstructure:"max_statement_bytes"`
}

const (
	minStatementBytes = 1 << 10
	maxStatementBytes = 1<<24 - 1024 // a statement stays within one packet of the protocol
)

// DefaultOptions are right for a server in the same data centre. Only the DSN, or those of the shards, is missing.
func DefaultOptions() Options {
	return Options{
		Shards:          []string{},
		MigrateShards:   []string{},
		MaxOpenConns:    16,
		ConnectTimeout:  5 * time.Second,
		ReadTimeout:     30 * time.Second,
		WriteTimeout:    30 * time.Second,
		LockWaitTimeout: 2 * time.Second,
		IdleTimeout:     30 * time.Second,
		Retries:         8,
		RetryBackoff:    10 * time.Millisecond,
		RetryBackoffMax: time.Second,
		// BenchmarkApply, 50,000 posts, MariaDB on the same two cores: the best runs took 232 to 237 ms with 64 to
		// 512 KiB and 259 ms with 8 KiB; noise between runs was larger than that. So the size is no lever locally.
		// 256 KiB are some 10,000 posts a round trip, and below the default max_allowed_packet of every server.
		MaxStatementBytes: 256 << 10,
	}
}

// Validate tells every setting that cannot work, by its name in the configuration.
func (o Options) Validate() (err error) {
	if !o.HasServer() {
		_, err = parseDSN(o.DSN)
	}
	return errors.Join(err, o.ValidateOptional())
}

// ValidateOptional is Validate where no database need be named.
func (o Options) ValidateOptional() error {
	var p problems
	o.validateDSNs(&p)
	p.add(o.files().Validate(o.TLS))
	p.addIf(o.MaxOpenConns < 1, "max_open_conns is %d; at least 1 is needed", o.MaxOpenConns)
	p.addIf(o.ConnectTimeout <= 0, "connect_timeout is %s; it must be above 0", o.ConnectTimeout)
	p.addIf(o.ReadTimeout <= 0, "read_timeout is %s; it must be above 0", o.ReadTimeout)
	p.addIf(o.WriteTimeout <= 0, "write_timeout is %s; it must be above 0", o.WriteTimeout)
	p.addIf(!wholeSeconds(o.LockWaitTimeout),
		"lock_wait_timeout is %s; MySQL takes whole seconds (0: the server's own)", o.LockWaitTimeout)
	p.addIf(o.LockWaitTimeout >= o.ReadTimeout,
		"lock_wait_timeout %s must be below read_timeout %s", o.LockWaitTimeout, o.ReadTimeout)
	p.addIf(!wholeSeconds(o.IdleTimeout),
		"idle_timeout is %s; MySQL takes whole seconds (0: the server's own)", o.IdleTimeout)
	p.addIf(o.Retries < 0, "retries is %d; it must not be negative", o.Retries)
	p.addIf(o.RetryBackoff <= 0, "retry_backoff is %s; it must be above 0", o.RetryBackoff)
	p.addIf(o.RetryBackoffMax < o.RetryBackoff,
		"retry_backoff_max %s must not be below retry_backoff %s", o.RetryBackoffMax, o.RetryBackoff)
	p.addIf(o.MaxStatementBytes < minStatementBytes || o.MaxStatementBytes > maxStatementBytes,
		"max_statement_bytes is %d; it must be between %d and %d",
		o.MaxStatementBytes, minStatementBytes, maxStatementBytes)
	return errors.Join(p...)
}

// problems are what is wrong with settings.
type problems []error

func (p *problems) add(err error) { *p = append(*p, err) }

func (p *problems) addIf(wrong bool, format string, args ...any) {
	if wrong {
		p.add(fmt.Errorf(format, args...))
	}
}

// wholeSeconds: 0, or a positive number of seconds.
func wholeSeconds(d time.Duration) bool { return d >= 0 && d%time.Second == 0 }

// LogValue keeps the password out of logs.
func (o Options) LogValue() slog.Value {
	var servers []string
	for _, one := range o.Each() {
		servers = append(servers, one.server())
	}
	return slog.GroupValue(
		slog.String("server", strings.Join(servers, ", ")),
		slog.Bool("tls", o.TLS),
		slog.Int("max_open_conns", o.MaxOpenConns),
		slog.Int("max_statement_bytes", o.MaxStatementBytes),
	)
}
