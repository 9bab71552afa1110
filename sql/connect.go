package sql

import (
	"cmp"
	"context"
	stdsql "database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"

	"kudos/httpserver/tlsfiles"
)

const (
	// sqlMode is set explicitly, so that every server rejects values that don't fit instead of truncating them.
	sqlMode = "'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'"

	connLifetime = 5 * time.Minute // makes busy connections, too, follow a DNS name or proxy to a new server

	packetMargin = 64 // left free below max_allowed_packet for the command byte and the server's own overhead
)

// parseDSN never repeats the DSN or the driver's error in its own errors: both may contain the password.
func parseDSN(dsn string) (*mysql.Config, error) {
	const form = "user:password@tcp(host:port)/database"
	if dsn == "" {
		return nil, errors.New("dsn is empty; set it to " + form)
	}
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, errors.New("dsn cannot be parsed; its form is " + form +
			", options in the form ?name=value&name=value")
	}
	if config.DBName == "" {
		return nil, errors.New("dsn names no database; its form is " + form)
	}
	return config, nil
}

// serverName is host:port/database for logs and errors, without user and password.
func serverName(dsn string) string {
	config, err := parseDSN(dsn)
	if err != nil {
		return "(invalid dsn)"
	}
	return config.Addr + "/" + config.DBName
}

// Connector opens connections configured like those of a Store, for callers that run their own statements.
func (o Options) Connector(log *slog.Logger) (driver.Connector, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("mysql options: %w", err)
	}
	return newConnector(o, log)
}

// untimed disables the read and idle timeouts. Altering a large table can take hours without a response, while the
// connection that holds the lock is idle. The context and TCP keepalive bound the wait instead.
func (o Options) untimed() Options {
	o.IdleTimeout, o.ReadTimeout = 0, 0
	o.MaxOpenConns = 2 // one holds the lock, the other runs the statements
	return o
}

func newConnector(o Options, log *slog.Logger) (driver.Connector, error) {
	config, err := driverConfig(o, log)
	if err != nil {
		return nil, fmt.Errorf("mysql options: %w", err)
	}
	return mysql.NewConnector(config)
}

// driverConfig is the DSN plus the settings that exactness depends on. They override the DSN.
func driverConfig(o Options, log *slog.Logger) (*mysql.Config, error) {
	c, err := parseDSN(o.DSN)
	if err != nil {
		return nil, err
	}
	c.Timeout, c.ReadTimeout, c.WriteTimeout = o.ConnectTimeout, o.ReadTimeout, o.WriteTimeout
	c.Logger = driverLogger{log}
	c.CheckConnLiveness = true
	c.RejectReadOnly = true    // after a failover the old primary is read-only: drop the connection
	c.InterpolateParams = true // one round trip per statement, no prepared statements
	c.MultiStatements = false
	c.ParseTime, c.Loc = true, time.UTC
	// clientFoundRows may be on or off: the compare-and-swap always changes next_offset, so all rows found are changed.
	c.ConnectionAttributes = cmp.Or(c.ConnectionAttributes, "program_name:kudos") // in the server's process list
	if c.Params == nil {
		c.Params = map[string]string{}
	}
	c.Params["autocommit"] = "1"
	c.Params["time_zone"] = "'+00:00'"
	c.Params["sql_mode"] = sqlMode
	if o.LockWaitTimeout > 0 {
		c.Params["innodb_lock_wait_timeout"] = strconv.Itoa(int(o.LockWaitTimeout.Seconds()))
	}
	if o.IdleTimeout > 0 {
		c.Params["wait_timeout"] = strconv.Itoa(int(o.IdleTimeout.Seconds()))
	}
	return c, o.secure(c)
}

// secure makes the driver read the TLS files again for every connection.
func (o Options) secure(c *mysql.Config) error {
	if !o.TLS {
		return nil
	}
	server, _, err := net.SplitHostPort(c.Addr)
	if err != nil {
		return errors.New("mysql.tls is for TCP, but the dsn names a Unix socket, which needs no TLS: unset mysql.tls")
	}
	c.AllowFallbackToPlaintext = false // the DSN may have allowed it
	return c.Apply(mysql.BeforeConnect(o.newTLS(server)))
}

func (o Options) newTLS(server string) func(context.Context, *mysql.Config) error {
	return func(_ context.Context, c *mysql.Config) (err error) {
		c.TLS, err = o.files().Config(server)
		return err
	}
}

func (o Options) files() tlsfiles.Files {
	return tlsfiles.Files{Setting: "mysql.tls", CA: o.TLSCA, Cert: o.TLSCert, Key: o.TLSKey}
}

// CheckFiles reads the TLS files, so that startup reports a bad file rather than the first connection.
func (o Options) CheckFiles() error { return o.files().Check(o.TLS) }

// connector reads max_allowed_packet on each new connection. This way the limit is known before the first statement and
// updated after a failover, without a round trip per transaction.
type connector struct {
	driver.Connector
	timeout time.Duration // for Connect as a whole; the driver's own covers dialing only
	limit   *packetLimit
}

func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	bytes, err := maxAllowedPacket(ctx, conn)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read max_allowed_packet: %w", err), conn.Close())
	}
	c.limit.lower(bytes)
	return conn, nil
}

func maxAllowedPacket(ctx context.Context, conn driver.Conn) (int64, error) {
	queryer, ok := conn.(driver.QueryerContext)
	if !ok {
		return 0, fmt.Errorf("driver connection %T cannot query", conn)
	}
	rows, err := queryer.QueryContext(ctx, "SELECT @@max_allowed_packet", nil)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	row := make([]driver.Value, 1)
	if err := rows.Next(row); err != nil {
		return 0, err
	}
	var bytes stdsql.NullInt64
	err = bytes.Scan(row[0])
	return bytes.Int64, err
}

// packetLimit bounds a statement's text, in bytes. server is the smallest max_allowed_packet seen on any connection, 0
// before the first. It never rises: if the server's limit is raised, earlier connections keep the lower one.
type packetLimit struct {
	ours   int
	server atomic.Int64
}

func (l *packetLimit) lower(bytes int64) {
	for {
		known := l.server.Load()
		if known != 0 && known <= bytes || l.server.CompareAndSwap(known, bytes) {
			return
		}
	}
}

func (l *packetLimit) statementBytes() int {
	if server := l.server.Load(); server != 0 {
		return min(l.ours, int(server)-packetMargin)
	}
	return l.ours
}

type driverLogger struct{ log *slog.Logger } // at debug level: each message also reaches the caller as an error

func (l driverLogger) Print(v ...any) { l.log.Debug("mysql driver", "message", fmt.Sprint(v...)) }
