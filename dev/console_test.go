package dev

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBanner(t *testing.T) {
	b := Banner{EmbeddedKafka: true, EmbeddedMySQL: true, Rate: 2000, Addresses: Addresses{
		Kafka: "127.0.0.1:9092", MySQL: "127.0.0.1:3306",
		HTTP: "127.0.0.1:8080", Reader: "127.0.0.1:8081", Admin: "127.0.0.1:9090",
	}}
	var out bytes.Buffer
	require.NoError(t, b.Print(&out))
	require.Equal(t, `
kudos is up. Everything runs in this process, with its data in memory: Ctrl-C stops it and deletes the data.

  dashboard  http://127.0.0.1:8081

  Kafka  127.0.0.1:9092           embedded; no security
  MySQL  127.0.0.1:3306           embedded; user root, no password, database kudos
  likes  http://127.0.0.1:8080    the producer's HTTP API
  reads  http://127.0.0.1:8081    the reader's HTTP API: /openapi.yaml
  admin  http://127.0.0.1:9090    /metrics, /readyz

2,000 simulated events arrive per second. Watch, or like something yourself:

  curl -i -X PUT 'http://127.0.0.1:8080/v1/posts/42/likes/7?region=DE'
  curl http://127.0.0.1:8081/v1/posts/42/likes
  curl -N 'http://127.0.0.1:8081/v1/stream?post_ids=42'
  mariadb -h127.0.0.1 -P3306 -uroot kudos -e 'select * from like_count order by 2 desc limit 10'
  kcat -b 127.0.0.1:9092 -C -t like-updates -o -10 -e -f 'post %k, %S bytes at %p@%o\n'
  kudos trending --brokers 127.0.0.1:9092 --follow
  kcat -b 127.0.0.1:9092 -C -t trending -o -20 -e -f '%k: %s\n'
  curl -s http://127.0.0.1:9090/readyz

`, out.String())

	printed := func() string {
		out.Reset()
		require.NoError(t, b.Print(&out))
		return out.String()
	}
	b.DataDir = "/data"
	require.Contains(t, printed(), " Everything runs in this process. Ctrl-C stops it; /data keeps its data.\n")
	b.DataDir, b.EmbeddedKafka, b.EmbeddedMySQL, b.Rate = "", false, false, 0
	require.NotRegexp(t, "data|root", printed())
}

func TestStatusLine(t *testing.T) {
	at := time.UnixMilli(0)
	counts := SimulatorCounts{Published: 1_000_000}
	s := NewStatus(NewConsole(io.Discard, false), Hooks{
		Published: func() SimulatorCounts { return counts },
		Applied:   func(context.Context) (int64, error) { return -1234, nil },
		Lag:       func(context.Context) (int64, error) { return 0, errors.New("kafka is unavailable") },
	})
	s.lastAt = at
	s.line(t.Context(), at.Add(time.Second))
	counts.Published += 4_000
	require.Equal(t, "published 1,004,000 (2,000/s)   likes counted -1,234   lag unknown",
		s.line(t.Context(), at.Add(3*time.Second)))
	counts.Failed = 3
	require.Contains(t, s.line(t.Context(), at.Add(4*time.Second)), "(0/s)   failed 3   ")

	lagOnly := NewStatus(NewConsole(io.Discard, false), Hooks{Lag: s.hooks.Applied})
	require.Equal(t, "lag -1,234", lagOnly.line(t.Context(), at))
}

func TestStatusSharesTheTerminal(t *testing.T) {
	for terminal, want := range map[bool]string{
		true:  "\r\x1b[Klag 1" + "\r\x1b[Ka log line\n" + "\r\x1b[Klag 2" + "\n",
		false: "lag 1\na log line\nlag 2\n",
	} {
		var out bytes.Buffer
		console := NewConsole(&out, terminal)
		ctx, cancel := context.WithCancel(t.Context())
		n := int64(0)
		s := NewStatus(console, Hooks{Lag: func(context.Context) (int64, error) {
			switch n++; n {
			case 2:
				_, err := fmt.Fprintln(console, "a log line")
				require.NoError(t, err)
			case 3:
				cancel()
			}
			return n, nil
		}})
		require.NoError(t, s.run(ctx, time.Millisecond))
		require.Equal(t, want, out.String())
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestStatusEndsWhenNobodyReads(t *testing.T) {
	s := NewStatus(NewConsole(brokenPipe{}, false), Hooks{})
	require.ErrorIs(t, s.run(t.Context(), time.Millisecond), io.ErrClosedPipe)
}

func TestGrouped(t *testing.T) {
	numbers := map[int64]string{0: "0", 999: "999", 1000: "1,000", -123456: "-123,456", 1234567: "1,234,567"}
	for n, want := range numbers {
		require.Equal(t, want, grouped(n))
	}
}

func TestReadyFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "ready.json")
	earlier := "of an earlier run, and longer than what comes now: " + strings.Repeat("x", 1000)
	require.NoError(t, os.WriteFile(path, []byte(earlier), 0o600))
	require.NoError(t, WriteReady(path, Addresses{"k:1", "m:2", "h:3", "r:5", "a:4"}))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.JSONEq(t, `{"kafka": "k:1", "mysql": "m:2", "http": "h:3", "reader": "r:5", "admin": "a:4"}`, string(text))

	require.NoError(t, RemoveReady(path))
	require.NoError(t, RemoveReady(path))
	require.ErrorContains(t, WriteReady(filepath.Join(dir, "no", "such", "folder"), Addresses{}), "folder")
	require.NoError(t, os.Mkdir(path, 0o700)) // makes the last step fail
	require.Error(t, WriteReady(path, Addresses{}))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 1, "no temporary file is left")
}
