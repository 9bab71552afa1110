package stack

import (
	"bytes"
	"context"
	_ "embed" // the pom file
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

//go:embed connect/pom.xml
var connectPOM []byte

// Connect is a worker of Kafka Connect with Debezium's connector for MariaDB. It keeps its state in Kafka.
type Connect struct{ single }

// ConnectForTest starts a worker for a cluster until the end of the test. It downloads missing jars.
func ConnectForTest(t testing.TB, brokers []string) *Connect {
	t.Helper()
	Require(t, NeedKafka)
	c, err := startConnect(t.Context(), brokers, testLog(t))
	return own(t, c, err)
}

func startConnect(ctx context.Context, brokers []string, log *slog.Logger) (_ *Connect, err error) {
	java, err := findJava(ctx)
	if err != nil {
		return nil, err
	}
	jars, err := newArtifact("connect", connectPOM, "dependency:copy-dependencies")
	if err != nil {
		return nil, err
	}
	jarDir, err := jars.fetch(ctx, log)
	if err != nil {
		return nil, err
	}
	c := &Connect{}
	if c.dir, err = makeDir("", "kudos-connect-"); err != nil {
		return nil, fmt.Errorf("start connect: %w", err)
	}
	defer CloseOnError(&err, c.Close)
	if c.port, err = Reserve(); err != nil {
		return nil, err
	}
	err = errors.Join(c.write("worker.properties", c.properties(brokers)),
		os.WriteFile(filepath.Join(c.dir, "log4j2.properties"), []byte(log4j2Properties), 0o644))
	if err != nil {
		return nil, err
	}
	c.Server = NewProgram(ProgramOptions{
		Name: "connect", Path: java, Dir: c.dir, Log: log, Probe: c.answers,
		Args: append(quickJava("512m"), "-Dlog4j2.configurationFile=log4j2.properties",
			"-cp", filepath.Join(jarDir, "*"), "org.apache.kafka.connect.cli.ConnectDistributed", "worker.properties"),
	})
	return c, c.Start(ctx)
}

func (c *Connect) properties(brokers []string) map[string]string {
	properties := map[string]string{
		"bootstrap.servers": strings.Join(brokers, ","), "group.id": "connect", "listeners": "http://" + c.Address(),
		"key.converter":                    "org.apache.kafka.connect.json.JsonConverter",
		"value.converter":                  "org.apache.kafka.connect.json.JsonConverter",
		"key.converter.schemas.enable":     "false",
		"value.converter.schemas.enable":   "false",
		"offset.flush.interval.ms":         "1000",
		"session.timeout.ms":               "6000", // a killed worker returns soon
		"heartbeat.interval.ms":            "1000",
		"scheduled.rebalance.max.delay.ms": "0",
	}
	for _, kind := range []string{"offset", "config", "status"} {
		properties[kind+".storage.topic"] = "connect-" + kind
		properties[kind+".storage.replication.factor"] = "1"
	}
	properties["offset.storage.partitions"], properties["status.storage.partitions"] = "1", "1"
	return properties
}

func (c *Connect) write(file string, properties map[string]string) error {
	var text bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		fmt.Fprintf(&text, "%s=%s\n", name, properties[name])
	}
	return os.WriteFile(filepath.Join(c.dir, file), text.Bytes(), 0o644)
}

func (c *Connect) answers(ctx context.Context) error {
	_, err := c.request(ctx, http.MethodGet, "/connectors", nil)
	return err
}

// request sends a request to the worker's API.
func (c *Connect) request(ctx context.Context, method, path string, body any) ([]byte, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+c.Address()+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err = errors.Join(err, resp.Body.Close()); err == nil && resp.StatusCode >= http.StatusBadRequest {
		err = fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, answer)
	}
	return answer, err
}

// ConnectorForTest creates a connector and waits until it runs.
func (c *Connect) ConnectorForTest(t testing.TB, name string, config map[string]string) {
	t.Helper()
	require.NoError(t, eventually(t.Context(), time.Minute, func(ctx context.Context) error {
		_, err := c.request(ctx, http.MethodPut, "/connectors/"+name+"/config", config)
		return err // a worker that has just joined refuses for a moment
	}))
	require.NoError(t, eventually(t.Context(), time.Minute, func(ctx context.Context) error {
		return c.running(ctx, name)
	}))
}

func (c *Connect) running(ctx context.Context, name string) error {
	answer, err := c.request(ctx, http.MethodGet, "/connectors/"+name+"/status", nil)
	if err != nil {
		return err
	}
	var status struct {
		Tasks []struct{ State, Trace string }
	}
	if err := json.Unmarshal(answer, &status); err != nil {
		return err
	}
	if len(status.Tasks) != 1 || status.Tasks[0].State != "RUNNING" {
		return fmt.Errorf("the connector does not run: %s", answer)
	}
	return nil
}

// DebeziumConfig configures a connector that captures tables of this database; docs/migration.md describes it.
func (d *Database) DebeziumConfig(brokers []string, database, tables string) map[string]string {
	return map[string]string{
		"connector.class":   "io.debezium.connector.mariadb.MariaDbConnector",
		"tasks.max":         "1",
		"topic.prefix":      "shop",
		"database.hostname": "127.0.0.1", "database.port": fmt.Sprint(d.port.number),
		"database.user": "root", "database.password": "", "database.server.id": "4711",
		"database.ssl.mode":     "disable",
		"database.include.list": database, "table.include.list": tables,
		"schema.history.internal.kafka.topic":             "shop-schema-history",
		"schema.history.internal.kafka.bootstrap.servers": strings.Join(brokers, ","),
		"topic.creation.default.replication.factor":       "1",
		"topic.creation.default.partitions":               "3",
		"tombstones.on.delete":                            "false",
	}
}
