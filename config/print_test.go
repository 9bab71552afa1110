package config

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

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
		require.Regexp(t, `(?m)^ranker\.windows +10m,1h,24h +default$`, table.String())

		var entries []Entry
		require.NoError(t, json.Unmarshal(script.Bytes(), &entries))
		require.Contains(t, entries, Entry{Key: "kafka.dial_timeout", Value: "5s", From: "default", Env: "KUDOS_KAFKA_DIAL_TIMEOUT"})
		require.Contains(t, entries, Entry{Key: "ranker.windows", Value: []any{"10m", "1h", "24h"}, From: "default", Env: "KUDOS_RANKER_WINDOWS"})
	}
}

func TestDurationText(t *testing.T) {
	for text, d := range map[string]time.Duration{
		"0s": 0, "500ms": 500 * time.Millisecond, "10s": 10 * time.Second, "1m30s": 90 * time.Second, "10m": 10 * time.Minute,
		"1h": time.Hour, "1h10m": 70 * time.Minute, "10h0m1s": 10*time.Hour + time.Second, "-24h": -24 * time.Hour,
	} {
		require.Equal(t, text, durationText(d))
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
