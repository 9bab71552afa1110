package sql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/go-sql-driver/mysql"

	"kudos/tlsfiles"
)

func (o Options) files() tlsfiles.Files {
	return tlsfiles.Files{Setting: "mysql.tls", CA: o.TLSCA, Cert: o.TLSCert, Key: o.TLSKey}
}

// CheckFiles reads the files that connections are made with. They are read again for each connection, but what is wrong
// with them is better told at the start.
func (o Options) CheckFiles() error {
	if !o.TLS {
		return nil
	}
	_, err := o.files().Config("")
	return err
}

// secure has the driver make a TLS configuration for each connection, from the files as they are then.
func (o Options) secure(c *mysql.Config) error {
	if !o.TLS {
		return nil
	}
	server, _, err := net.SplitHostPort(c.Addr)
	if err != nil {
		return errors.New("mysql.tls is for TCP, and the dsn names a socket: nobody is in between, leave it out")
	}
	c.AllowFallbackToPlaintext = false // which the DSN may allow
	return c.Apply(mysql.BeforeConnect(o.newTLS(server)))
}

// newTLS is called before each connection.
func (o Options) newTLS(server string) func(context.Context, *mysql.Config) error {
	return func(_ context.Context, c *mysql.Config) (err error) {
		c.TLS, err = o.files().Config(server)
		return err
	}
}

// Connector makes connections as stores have them, for whoever looks at the tables by statements of its own.
func (o Options) Connector(log *slog.Logger) (driver.Connector, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("mysql options: %w", err)
	}
	config, err := driverConfig(o, log)
	if err != nil {
		return nil, fmt.Errorf("mysql options: %w", err)
	}
	return newConnector(config)
}
