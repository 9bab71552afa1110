package config

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPrintMasksSecretsAndNamesOrigins(t *testing.T) {
	clearEnv(t)
	t.Setenv("KUDOS_LOG_LEVEL", "debug")
	const password = "s3cr=t@:/"
	for _, dsn := range []string{
		"kudos:" + password + "@tcp(db:3306)/kudos",
		"kudos:" + password + "@tcp(db:3306)/kudos?timeout=5s",
	} {
		l, err := Load(Sources{Flags: map[string]Flag{"mysql.dsn": {"--mysql-dsn", dsn}}})
		require.NoError(t, err)
		require.Equal(t, dsn, l.MySQL.DSN)

		var table, script bytes.Buffer
		require.NoError(t, l.WriteTable(&table))
		require.NoError(t, l.WriteJSON(&script))
		for _, out := range []string{table.String(), script.String()} {
			require.NotContains(t, out, password)
			require.Contains(t, out, "kudos:***@tcp(db:3306)/kudos")
		}
		require.Regexp(t, `(?m)^mysql\.dsn +\S+ +flag --mysql-dsn$`, table.String())
		require.Regexp(t, `(?m)^log\.level +debug +env KUDOS_LOG_LEVEL$`, table.String())
		require.Regexp(t, `(?m)^kafka\.brokers +127\.0\.0\.1:9092 +default$`, table.String())

		var entries []Entry
		require.NoError(t, json.Unmarshal(script.Bytes(), &entries))
		require.Contains(t, entries, Entry{Key: "kafka.dial_timeout", Value: "5s", From: "default", Env: "KUDOS_KAFKA_DIAL_TIMEOUT"})
	}
}

func TestMaskDSN(t *testing.T) {
	require.Empty(t, maskDSN(""))
	require.Equal(t, "root@tcp(db:3306)/kudos", maskDSN("root@tcp(db:3306)/kudos"))
	require.Equal(t, mask, maskDSN("kudos:hunter2@tcp(db:3306"), "unreadable: nothing of it is shown")
}

func TestParseSetNeverRepeatsItsArgument(t *testing.T) {
	_, _, err := ParseSet("mysql.dsn:hunter2")
	require.ErrorContains(t, err, "key=value")
	require.False(t, strings.Contains(err.Error(), "hunter2"))

	key, flag, err := ParseSet("MySQL.DSN=a=b")
	require.NoError(t, err)
	require.Equal(t, "mysql.dsn", key)
	require.Equal(t, Flag{"--set", "a=b"}, flag)
}
