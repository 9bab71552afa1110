package stack

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jmoiron/sqlx"

	"kudos/bench/child"
)

// DatabaseOptions configure a MariaDB or MySQL server. The zero value means the defaults below.
type DatabaseOptions struct {
	// Dir is where the data directory is created; Close removes it. If this process runs as root, the account of the
	// server must be able to enter Dir. Default: the system's temporary directory.
	Dir       string
	Keep      bool         // data and logs after Close
	ExtraArgs []string     // are added to the server's command line and override this package's settings
	Env       []string     // is added to the server's environment
	Disk      bool         // the data is on its own Disk
	Log       *slog.Logger // of starts and ends; default: none
}

// Database is one SQL server with its own data. Its only user is root, without a password, from this machine only.
type Database struct {
	single                 // directory: data/, init.log and server.log
	databases atomic.Int64 // created by NewDatabase; numbers their names
}

// engine is what differs between servers: the commands, without their directories, that create and serve the data.
type engine struct {
	name              string // such as "mariadb"
	initialize, serve []string
}

func startDatabase(ctx context.Context, e engine, o DatabaseOptions) (_ *Database, err error) {
	o.Log = orSilent(o.Log)
	begin := time.Now()
	d := &Database{single: single{keep: o.Keep}}
	if d.dir, err = makeDir(o.Dir, "kudos-"+e.name+"-"); err != nil {
		return nil, fmt.Errorf("start %s: %w", e.name, err)
	}
	defer CloseOnError(&err, d.Close)
	if err := d.prepare(ctx, e, o); err != nil {
		return nil, fmt.Errorf("prepare %s: %w", e.name, err)
	}
	if err := d.Start(ctx); err != nil {
		return nil, err
	}
	o.Log.Info(e.name+" is up", "dsn", d.DSN(""), "took", time.Since(begin).Round(time.Millisecond))
	return d, nil
}

func (d *Database) prepare(ctx context.Context, e engine, o DatabaseOptions) error {
	var err error
	if d.port, err = Reserve(); err != nil {
		return err
	}
	account, err := unprivileged()
	if err != nil {
		return err
	}
	// Each server has its own temporary directory: on its start it deletes all temporary tables there.
	data, temporary := filepath.Join(d.dir, "data"), filepath.Join(d.dir, "tmp")
	if err := errors.Join(os.Chmod(d.dir, 0o755), os.Mkdir(data, 0o700), os.Mkdir(temporary, 0o700)); err != nil {
		return err
	}
	var disk *Disk
	if o.Disk {
		if disk, err = NewDisk(data); err != nil {
			return err
		}
	}
	if err := errors.Join(account.own(data), account.own(temporary)); err != nil {
		return err
	}
	dirs := []string{"--datadir=" + data, "--tmpdir=" + temporary}
	err = run(ctx, child.Command{Name: "initializing " + e.name, Path: e.initialize[0],
		Args: slices.Concat(e.initialize[1:], dirs), Dir: data, Log: filepath.Join(d.dir, "init.log"),
		Account: account.runs})
	if err != nil {
		return err
	}
	d.Server = &Server{
		command: child.Command{Name: e.name, Path: e.serve[0],
			Args: slices.Concat(e.serve[1:], dirs, d.arguments(), o.ExtraArgs), Env: o.Env, Dir: data,
			Log: filepath.Join(d.dir, "server.log"), Account: account.runs},
		probe: func(ctx context.Context) error { return d.answers(ctx, data) },
		log:   o.Log,
		disk:  disk,
	}
	return nil
}

// arguments are the settings for both MariaDB and MySQL: as durable as in production, so that a test sees after a kill
// what an operator would see, and with the binary log that replicas read.
func (d *Database) arguments() []string {
	return []string{
		"--bind-address=127.0.0.1", fmt.Sprintf("--port=%d", d.port.number), "--pid-file=server.pid",
		"--socket=server.sock", // relative to the data directory: a full path may exceed the limit of socket names
		"--character-set-server=utf8mb4", "--innodb-flush-log-at-trx-commit=1", "--sync-binlog=1",
		"--server-id=1", "--log-bin=binlog", "--binlog-format=ROW",
		"--secure-file-priv=" + d.dir, // clients cannot write files elsewhere
	}
}

// answers checks that the server on the port serves this data directory, tables included: a node of Galera may not yet.
func (d *Database) answers(ctx context.Context, data string) error {
	return d.session(ctx, func(c *sqlx.Conn) error {
		var serving string
		if err := c.GetContext(ctx, &serving, "SELECT @@datadir FROM mysql.user LIMIT 1"); err != nil {
			return err
		}
		if filepath.Clean(serving) != filepath.Clean(data) {
			return fmt.Errorf("another server, with data in %s, listens on this port", serving)
		}
		return nil
	})
}

func (d *Database) session(ctx context.Context, do func(*sqlx.Conn) error) error {
	c, err := mysql.NewConnector(d.Config(""))
	if err != nil {
		return err
	}
	db := sqlx.NewDb(sql.OpenDB(c), "mysql")
	defer db.Close()
	conn, err := db.Connx(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return do(conn)
}

// Config is the configuration for go-sql-driver/mysql of a database on this server, or of none if database is empty.
func (d *Database) Config(database string) *mysql.Config {
	c := mysql.NewConfig()
	c.User, c.Net, c.Addr, c.DBName = "root", "tcp", d.Address(), database
	c.Logger = &mysql.NopLogger{} // failing connections are normal here
	return c
}

// DSN is Config as a data source name.
func (d *Database) DSN(database string) string { return d.Config(database).FormatDSN() }

// CreateDatabase creates an empty database, and fails if it exists.
func (d *Database) CreateDatabase(ctx context.Context, name string) error {
	return d.execute(ctx, "CREATE DATABASE", name)
}

// DropDatabase drops a database with all its contents.
func (d *Database) DropDatabase(ctx context.Context, name string) error {
	return d.execute(ctx, "DROP DATABASE", name)
}

func (d *Database) execute(ctx context.Context, verb, name string) error {
	err := d.session(ctx, func(c *sqlx.Conn) error {
		_, err := c.ExecContext(ctx, verb+" `"+strings.ReplaceAll(name, "`", "``")+"`")
		return err
	})
	if err != nil {
		return fmt.Errorf("%s %s on %s: %w", strings.ToLower(verb), name, d.command.Name, err)
	}
	return nil
}

// StartMariaDB starts this machine's MariaDB with no data, and returns once it answers. ctx bounds the start only.
func StartMariaDB(ctx context.Context, options DatabaseOptions) (*Database, error) {
	server, install, err := findMariaDB()
	if err != nil {
		return nil, err
	}
	return startDatabase(ctx, engine{
		name: "mariadb",
		initialize: []string{install, "--no-defaults", // ignores the machine's configuration; must be the first option
			"--auth-root-authentication-method=normal", // by password (empty), not by system account
			"--skip-name-resolve", "--force",           // needs no name service
			"--skip-test-db"},
		serve: []string{server, "--no-defaults", "--skip-name-resolve"},
	}, options)
}

func findMariaDB() (server, install string, err error) {
	if server, err = find("mariadbd", "MariaDB"); err == nil {
		install, err = find("mariadb-install-db", "the program that creates MariaDB's data directory")
	}
	return server, install, err
}

// StartMySQL starts Oracle's MySQL server, on an empty data directory, and returns once it answers. ctx bounds the
// start only. MySQL must be in this machine's cache, where deps.sh puts it: it is too large for an implicit download.
func StartMySQL(ctx context.Context, options DatabaseOptions) (*Database, error) {
	base, err := findMySQL()
	if err != nil {
		return nil, err
	}
	server := filepath.Join(base, "bin", "mysqld")
	return startDatabase(ctx, engine{
		name:       "mysql",
		initialize: []string{server, "--no-defaults", "--basedir=" + base, "--initialize-insecure"},
		// Name resolution stays on: root's account is for "localhost", to which 127.0.0.1 resolves.
		serve: []string{server, "--no-defaults", "--basedir=" + base, "--mysqlx=OFF"},
	}, options)
}

func findMySQL() (base string, err error) {
	a, err := mysqlArtifact()
	if err != nil {
		return "", err
	}
	base, cached, err := a.dir()
	if err == nil && !cached {
		err = fmt.Errorf("MySQL is not installed: no %s; %s", base, installMySQLHint)
	}
	return base, err
}
