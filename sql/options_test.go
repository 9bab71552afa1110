package sql

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
		"max_open_conns":                       func(o *Options) { o.MaxOpenConns = 0 },
		"connect_timeout":                      func(o *Options) { o.ConnectTimeout = 0 },
		"read_timeout":                         func(o *Options) { o.ReadTimeout = -1 },
		"write_timeout":                        func(o *Options) { o.WriteTimeout = 0 },
		"lock_wait_timeout is 1.5s":            func(o *Options) { o.LockWaitTimeout = 1500 * time.Millisecond },
		"lock_wait_timeout 30s must be below":  func(o *Options) { o.LockWaitTimeout = o.ReadTimeout },
		"idle_timeout is 100ms":                func(o *Options) { o.IdleTimeout = 100 * time.Millisecond },
		"retries":                              func(o *Options) { o.Retries = -1 },
		"retry_backoff is 0s":                  func(o *Options) { o.RetryBackoff = 0 },
		"retry_backoff_max":                    func(o *Options) { o.RetryBackoffMax = o.RetryBackoff - 1 },
		"max_statement_bytes is 1023":          func(o *Options) { o.MaxStatementBytes = 1023 },
		"max_statement_bytes is 16777216":      func(o *Options) { o.MaxStatementBytes = 1 << 24 },
		"dsn names no database":                func(o *Options) { o.DSN = "root@tcp(db:3306)/" },
		"dsn cannot be read; its form is user": func(o *Options) { o.DSN = "root@db" },
	} {
		o := DefaultOptions()
		o.DSN = "kudos:secret@tcp(db:3306)/kudos"
		spoil(&o)
		require.ErrorContains(t, o.Validate(), want)
		_, err := New(o, discardLog())
		require.ErrorContains(t, err, want)
	}
}

// The driver's own messages repeat parts of a DSN it cannot read.
func TestPasswordsStayOutOfMessages(t *testing.T) {
	for _, dsn := range []string{"root:hunter2:db:3306/kudos", "root:hunter2@db/kudos", "root:hunter2@tcp(db:3306)/", "root:hunter2/kudos?x=%zz"} {
		o := DefaultOptions()
		o.DSN = dsn
		if err := o.Validate(); err != nil {
			require.NotContains(t, err.Error(), "hunter2", dsn)
		}
		var line bytes.Buffer
		slog.New(slog.NewTextHandler(&line, nil)).Info("starting", "mysql", o)
		require.NotContains(t, line.String(), "hunter2")
	}
}

func TestPacketLimitIsTheSmallestSeen(t *testing.T) {
	var limit packetLimit
	require.Equal(t, 5000, limit.statementBytes(5000), "nothing known yet")
	for _, server := range []int64{1 << 20, 4096, 1 << 24} {
		limit.lower(server)
	}
	require.Equal(t, 4096-packetMargin, limit.statementBytes(5000))
	require.Equal(t, 3000, limit.statementBytes(3000))
}

// With autocommit off, as a server may have it by default, a pooled connection would look at the past for ever.
func TestSessionsCommitStatementsOnTheirOwn(t *testing.T) {
	config, err := driverConfig(noServer(t).options, discardLog())
	require.NoError(t, err)
	require.Equal(t, "1", config.Params["autocommit"])
}
