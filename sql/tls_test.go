package sql

import (
	"context"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"kudos/integration/stack"
)

// ofDSN are options with this DSN and TLS by the files of an authority.
func ofDSN(t *testing.T, dsn string) Options {
	t.Helper()
	a := stack.NewAuthority(t)
	own := a.IssueForTest(t, "client")
	o := testOptions(dsn)
	o.TLS, o.TLSCA, o.TLSCert, o.TLSKey = true, a.CA(), own.Cert, own.Key
	return o
}

// TestTLSWhateverTheDSNSays: what the settings ask for is not given up for what a DSN allows.
func TestTLSWhateverTheDSNSays(t *testing.T) {
	for _, tls := range []string{"", "?tls=false", "?tls=skip-verify", "?tls=preferred", "?allowFallbackToPlaintext=true"} {
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
	require.NoError(t, err, "it does no I/O")
	o.TLS = false
	require.NoError(t, o.CheckFiles(), "nobody needs it")
}

// TestTablesAreMadeByAnother: where that is set.
func TestTablesAreMadeByAnother(t *testing.T) {
	o := testOptions("kudos:secret@tcp(db:3306)/kudos")
	require.Equal(t, o, o.OfMigrations())
	o.MigrateDSN = "owner:secret@tcp(db:3306)/kudos"
	require.Equal(t, o.MigrateDSN, o.OfMigrations().DSN)
	o.MigrateDSN = "hunter2@db"
	require.ErrorContains(t, o.Validate(), "migrate_dsn cannot be read")
	require.NotContains(t, o.Validate().Error(), "hunter2")
}
