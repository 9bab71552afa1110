package sql

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"kudos/integration/stack"
)

func TestDefaultOptionsNeedOnlyADSN(t *testing.T) {
	o := DefaultOptions()
	require.ErrorContains(t, o.Validate(), "dsn is empty")
	o.DSN = "kudos:secret@tcp(db:3306)/kudos"
	require.NoError(t, o.Validate())
	o.MaxOpenConns, o.LockWaitTimeout, o.IdleTimeout = 1, 0, 0
	require.NoError(t, o.Validate())
}

func TestValidateNamesTheSetting(t *testing.T) {
	for want, spoil := range map[string]func(*Options){
		"max_open_conns":                         func(o *Options) { o.MaxOpenConns = 0 },
		"connect_timeout":                        func(o *Options) { o.ConnectTimeout = 0 },
		"read_timeout":                           func(o *Options) { o.ReadTimeout = -1 },
		"write_timeout":                          func(o *Options) { o.WriteTimeout = 0 },
		"lock_wait_timeout is 1.5s":              func(o *Options) { o.LockWaitTimeout = 1500 * time.Millisecond },
		"lock_wait_timeout 30s must be below":    func(o *Options) { o.LockWaitTimeout = o.ReadTimeout },
		"idle_timeout is 100ms":                  func(o *Options) { o.IdleTimeout = 100 * time.Millisecond },
		"retries":                                func(o *Options) { o.Retries = -1 },
		"retry_backoff is 0s":                    func(o *Options) { o.RetryBackoff = 0 },
		"retry_backoff_max":                      func(o *Options) { o.RetryBackoffMax = o.RetryBackoff - 1 },
		"max_statement_bytes is 1023":            func(o *Options) { o.MaxStatementBytes = 1023 },
		"max_statement_bytes is 16777216":        func(o *Options) { o.MaxStatementBytes = 1 << 24 },
		"dsn names no database":                  func(o *Options) { o.DSN = "root@tcp(db:3306)/" },
		"dsn cannot be parsed; its form is user": func(o *Options) { o.DSN = "root@db" },
	} {
		o := DefaultOptions()
		o.DSN = "kudos:secret@tcp(db:3306)/kudos"
		spoil(&o)
		require.ErrorContains(t, o.Validate(), want)
		_, err := New(o, discardLog())
		require.ErrorContains(t, err, want)
	}
}

// The driver's own messages repeat parts of a DSN that it cannot parse.
func TestPasswordsStayOutOfMessages(t *testing.T) {
	for _, dsn := range []string{"root:hunter2:db:3306/kudos", "root:hunter2@db/kudos", "root:hunter2@tcp(db:3306)/",
		"root:hunter2/kudos?x=%zz"} {
		o := DefaultOptions()
		o.DSN = dsn
		if err := o.Validate(); err != nil {
			require.NotContains(t, err.Error(), "hunter2", dsn)
		}
		var line bytes.Buffer
		textLog(&line).Info("starting", "mysql", o)
		require.NotContains(t, line.String(), "hunter2")
	}
}

func TestPacketLimitIsTheSmallestSeen(t *testing.T) {
	limit := &packetLimit{ours: 5000}
	require.Equal(t, 5000, limit.statementBytes(), "no server limit known yet")
	for _, server := range []int64{1 << 20, 4096, 1 << 24} {
		limit.lower(server)
	}
	require.Equal(t, 4096-packetMargin, limit.statementBytes())
	limit.ours = 3000
	require.Equal(t, 3000, limit.statementBytes())
}

// With autocommit off, which a server may have as its default, a pooled connection would keep reading an old snapshot.
func TestSessionsCommitStatementsOnTheirOwn(t *testing.T) {
	config, err := driverConfig(noServer(t).options, discardLog())
	require.NoError(t, err)
	require.Equal(t, "1", config.Params["autocommit"])
}

func ofDSN(t *testing.T, dsn string) Options {
	t.Helper()
	a := stack.NewAuthority(t)
	own := a.IssueForTest(t, "client")
	o := testOptions(dsn)
	o.TLS, o.TLSCA, o.TLSCert, o.TLSKey = true, a.CA(), own.Cert, own.Key
	return o
}

func TestTLSWhateverTheDSNSays(t *testing.T) {
	for _, tls := range []string{"", "?tls=false", "?tls=skip-verify", "?tls=preferred",
		"?allowFallbackToPlaintext=true"} {
		o := ofDSN(t, "kudos:secret@tcp(127.0.0.1:1)/kudos"+tls)
		require.NoError(t, o.Validate())
		require.NoError(t, o.CheckFiles())
		c, err := driverConfig(o, discardLog())
		require.NoError(t, err)
		require.False(t, c.AllowFallbackToPlaintext, tls)
		made := &mysql.Config{}
		require.NoError(t, o.newTLS("127.0.0.1")(context.Background(), made))
		require.Equal(t, "127.0.0.1", made.TLS.ServerName)
		require.False(t, made.TLS.InsecureSkipVerify)
		require.NotNil(t, made.TLS.RootCAs)
		require.Len(t, made.TLS.Certificates, 1)
	}
}

func TestTLSOptions(t *testing.T) {
	o := ofDSN(t, "kudos:secret@unix(/run/mysql.sock)/kudos")
	_, err := New(o, discardLog())
	require.ErrorContains(t, err, "mysql.tls is for TCP")

	o = ofDSN(t, "kudos:secret@tcp(db:3306)/kudos")
	o.TLS = false
	require.ErrorContains(t, o.Validate(), "mysql.tls is false")
	o.TLS, o.TLSKey = true, ""
	require.ErrorContains(t, o.Validate(), "mysql.tls_cert and mysql.tls_key belong together")
	o.TLSCert, o.TLSCA = "", "/nowhere/ca.pem"
	require.ErrorContains(t, o.CheckFiles(), "mysql.tls_ca: open /nowhere/ca.pem")
	_, err = New(o, discardLog())
	require.NoError(t, err, "New does no I/O")
	o.TLS = false
	require.NoError(t, o.CheckFiles(), "without TLS, no file is needed")
}

// TestTablesAreMadeByAnother checks that migrations use MigrateDSN or MigrateShards if set.
func TestTablesAreMadeByAnother(t *testing.T) {
	o := testOptions("kudos:secret@tcp(db:3306)/kudos")
	require.Equal(t, o, o.OfMigrations())
	o.MigrateDSN = "owner:secret@tcp(db:3306)/kudos"
	require.Equal(t, o.MigrateDSN, o.OfMigrations().DSN)
	o.MigrateDSN = "hunter2@db"
	require.ErrorContains(t, o.Validate(), "migrate_dsn cannot be parsed")
	require.NotContains(t, o.Validate().Error(), "hunter2")
}
