package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/integration/stack"
	"kudos/integration/tier"
	"kudos/schema"
)

// shop is the database of another application, with a connector that captures it.
type shop struct {
	*system
	database *stack.Database
	db       *sqlx.DB
	connect  *stack.Connect
	dsnFile  string
}

func newShop(t *testing.T, tables ...string) *shop {
	s := &shop{system: newRealSystem(t)}
	s.database = stack.MariaDBForTest(t, stack.DatabaseOptions{Log: s.log})
	require.NoError(t, s.database.CreateDatabase(t.Context(), "shop"))
	var err error
	s.db, err = sqlx.Open("mysql", s.database.DSN("shop"))
	require.NoError(t, err)
	t.Cleanup(func() { s.db.Close() })
	for _, table := range tables {
		s.db.MustExecContext(t.Context(), table)
	}
	s.dsnFile = filepath.Join(t.TempDir(), "dsn")
	require.NoError(t, os.WriteFile(s.dsnFile, []byte(s.database.DSN("shop")+"\n"), 0o600))
	s.connect = stack.ConnectForTest(t, s.brokers)
	return s
}

// The tables of docs/migration.md: one of likes, and the one by which a connector is told to read it.
const (
	postLikes = `CREATE TABLE post_likes (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY,
		post_id BIGINT UNSIGNED NOT NULL, user_id BIGINT UNSIGNED NOT NULL,
		created_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), UNIQUE KEY (post_id, user_id))`
	signals = `CREATE TABLE debezium_signal (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32) NOT NULL,
		data VARCHAR(2048))`
	backfill = `INSERT INTO debezium_signal VALUES ('backfill', 'execute-snapshot',
		'{"data-collections": ["shop.post_likes"], "type": "incremental"}')`
	likedPosts = 5000
)

func (s *shop) capture() {
	config := s.database.DebeziumConfig(s.brokers, "shop", "shop.post_likes")
	config["message.key.columns"] = "shop.post_likes:post_id,user_id"
	config["snapshot.mode"] = "no_data"
	config["signal.data.collection"] = "shop.debezium_signal"
	config["incremental.snapshot.chunk.size"] = "8192"
	s.connect.ConnectorForTest(s.t, "post-likes", config)
}

// use is the old application: it inserts and deletes likes until stop, which returns how many.
func (s *shop) use(users int) (stop func() int64) {
	ctx, cancel := context.WithCancel(s.t.Context())
	var changes atomic.Int64
	var working sync.WaitGroup
	for client := range uint64(4) {
		working.Go(func() {
			rng := rand.New(rand.NewPCG(client, 7))
			for ctx.Err() == nil {
				post, user := 1+rng.IntN(likedPosts), 1+rng.IntN(users)
				result, err := s.db.Exec("DELETE FROM post_likes WHERE post_id = ? AND user_id = ?", post, user)
				if err == nil {
					var n int64
					if n, err = result.RowsAffected(); err == nil && n == 0 {
						_, err = s.db.Exec("INSERT IGNORE INTO post_likes (post_id, user_id) VALUES (?, ?)", post, user)
					}
				}
				if err != nil {
					s.t.Errorf("the old application: %v", err)
					return
				}
				changes.Add(1)
				pause(s.t, 20*time.Millisecond)
			}
		})
	}
	return func() int64 { cancel(); working.Wait(); return changes.Load() }
}

// strike kills a bridge every few seconds, and every fourth time the connector, if it has written 20,000 records since
// the last time, until stop, which returns how often. A connector takes 11 seconds to start, and longer on a busy
// machine: if it were killed more often, it would fall behind the application.
func (s *shop) strike(bridges []*process) (stop func() int) {
	ctx, cancel := context.WithCancel(s.t.Context())
	struck, had, done := 0, int64(0), make(chan struct{})
	go func() {
		defer close(done)
		for ; ctx.Err() == nil; struck++ {
			victim := bridges[struck%2].Server
			if n, err := s.sourceEnd(ctx); struck%4 == 1 && err == nil && n >= had+20_000 {
				victim, had = s.connect.Server, n
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(2 * time.Second):
			}
			if err := victim.Kill(); err != nil {
				s.t.Errorf("killing %s: %v", victim, err)
			}
			if err := victim.Start(s.t.Context()); err != nil {
				s.t.Errorf("starting %s again: %v", victim, err)
			}
		}
	}()
	return func() int { cancel(); <-done; return struck }
}

// sourceEnd returns how many records the connector has written.
func (s *shop) sourceEnd(ctx context.Context) (n int64, err error) {
	ends, err := s.admin().ListEndOffsets(ctx, "shop."+sourceTopic)
	ends.Each(func(o kadm.ListedOffset) { n += max(0, o.Offset) })
	return n, err
}

func (s *shop) bridge(name string) *process {
	return s.role(name, "bridge", "--set", "bridge.topic=shop.shop.post_likes",
		"--set", "bridge.columns.time=created_at", "--set", "bridge.session_timeout=2s",
		"--set", "bridge.park_interval=200ms")
}

// against compares like_count with the table.
func (s *shop) against(code int) (r struct {
	Equal bool
	Posts struct{ Compared, Different int64 }
}) {
	s.report(&r, code, s.on("audit", "--output", "json", "--against-dsn-file", s.dsnFile,
		"--against", "SELECT post_id, COUNT(*) FROM post_likes GROUP BY post_id")...)
	return r
}

// sums returns the number of likes in the table, and in like_count.
func (s *shop) sums() (table, counted int64) {
	require.NoError(s.t, s.db.Get(&table, "SELECT COUNT(*) FROM post_likes"))
	require.NoError(s.t, s.system.db.Get(&counted, "SELECT COALESCE(SUM(count), 0) FROM like_count"))
	return table, counted
}

// A table of likes moves to kudos while its application changes it, and while the connector and the bridges are killed.
// Then the application stops, and kudos has what the table has.
func TestMigrationFromATable(t *testing.T) {
	tier.Verify(t)
	migrate(t, int64(tier.Limited(200_000, 100_000)))
}

func TestMigrationOfAMillionRows(t *testing.T) {
	tier.Nightly(t)
	migrate(t, 1_000_000)
}

func migrate(t *testing.T, rows int64) {
	s := newShop(t, postLikes, signals)
	const users = 20_000
	s.db.MustExecContext(t.Context(), fmt.Sprintf(`INSERT INTO post_likes (post_id, user_id, created_at)
		SELECT 1 + seq %% %d, 1 + seq DIV %d, '2026-01-01' + INTERVAL seq SECOND FROM seq_0_to_%d`,
		likedPosts, likedPosts, rows-1))
	s.processor("processor").start()
	bridges := []*process{s.bridge("bridge-0").start(), s.bridge("bridge-1").start()} // they wait for the topic
	begin := time.Now()
	s.capture()
	stopUse := s.use(users)
	waitFor(t, time.Minute, "the first changes: an earlier signal would not be seen", func() bool {
		n, err := s.sourceEnd(t.Context())
		require.NoError(t, err)
		return n > 0
	})
	s.db.MustExecContext(t.Context(), backfill)
	stopStriking := s.strike(bridges)
	waitSaid(t, 8*time.Minute, "the backfill", func() (bool, any) {
		n := s.written(t.Context(), schema.TopicLikes)
		return n >= rows, n
	})
	kills, changes := stopStriking(), stopUse() // the cut-over
	waitSaid(t, 3*time.Minute, "the last changes", func() (bool, any) {
		table, counted := s.sums()
		return table == counted, fmt.Sprintf("%d likes in the table, %d counted", table, counted)
	})
	t.Logf("%d rows and %d changes in %v, %d kills", rows, changes, time.Since(begin).Round(time.Second), kills)
	require.Greater(t, kills, 3)
	require.Greater(t, changes, int64(1000))

	s.markTheEnd()
	s.drain(time.Minute)
	r := s.against(0)
	require.True(t, r.Equal)
	require.EqualValues(t, likedPosts+endPosts, r.Posts.Compared)
	s.auditBoth()
	require.Zero(t, s.written(t.Context(), schema.TopicDLT))
	var days int
	require.NoError(t, s.system.db.Get(&days, "SELECT COUNT(DISTINCT DATE(hour)) FROM like_hourly WHERE likes > 0"))
	require.Greater(t, days, int(rows/86400), "rows count in the hour in which they were created")

	s.produce(schema.Event{PostID: endPost, UserID: 1, Action: schema.Unlike, Region: schema.UnknownRegion})
	s.drain(time.Minute) // what a user does from now on wins over the table
	require.EqualValues(t, 1, s.against(3).Posts.Different)
}

const endPost, endPosts = 1_000_000, 64

// markTheEnd adds rows to each partition of the source, and waits until they are counted: all earlier changes are.
func (s *shop) markTheEnd() {
	for post := range endPosts {
		s.db.MustExec("INSERT INTO post_likes (post_id, user_id) VALUES (?, 1)", endPost+post)
	}
	waitSaid(s.t, time.Minute, "the rows at the end", func() (bool, any) {
		var counted int
		require.NoError(s.t, s.system.db.Get(&counted, "SELECT COUNT(*) FROM like_count WHERE post_id >= ?", endPost))
		return counted == endPosts, counted
	})
}

// An application with an outbox table needs no bridge: Debezium's event router writes events to likes itself.
func TestOutbox(t *testing.T) {
	tier.Verify(t)
	s := newShop(t, `CREATE TABLE outbox (id CHAR(36) PRIMARY KEY DEFAULT UUID(), aggregatetype VARCHAR(32) NOT NULL,
		aggregateid VARCHAR(20) NOT NULL, type VARCHAR(32) NOT NULL, payload JSON NOT NULL)`)
	config := s.database.DebeziumConfig(s.brokers, "shop", "shop.outbox")
	for key, value := range map[string]string{
		"key.converter":          "org.apache.kafka.connect.storage.StringConverter",
		"value.converter":        "org.apache.kafka.connect.storage.StringConverter",
		"transforms":             "outbox",
		"transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
		"transforms.outbox.route.topic.replacement": schema.TopicLikes,
	} {
		config[key] = value
	}
	s.connect.ConnectorForTest(t, "outbox", config)
	s.processor("processor").start()
	rng, want := rand.New(rand.NewPCG(3, 4)), map[[2]uint64]bool{}
	now := time.Now().UnixMilli()
	for i := range int64(3000) {
		post, user, action := 1+rng.Uint64N(40), 1+rng.Uint64N(50), []string{"LIKE", "UNLIKE"}[rng.IntN(2)]
		s.db.MustExecContext(t.Context(),
			"INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES ('likes', ?, 'like', ?)", post,
			fmt.Sprintf(`{"post_id": %d, "user_id": "%d", "action": %q, "time_ms": %d}`, post, user, action, now+i))
		want[[2]uint64{post, user}] = action == "LIKE"
		if i == 1000 {
			require.NoError(t, s.connect.Kill())
			require.NoError(t, s.connect.Start(t.Context()))
		}
	}
	var likes int64
	for _, liked := range want {
		if liked {
			likes++
		}
	}
	waitSaid(t, 2*time.Minute, "the events", func() (bool, any) {
		var counted int64
		require.NoError(t, s.system.db.Get(&counted, "SELECT COALESCE(SUM(count), 0) FROM like_count"))
		return counted == likes, fmt.Sprintf("%d of %d likes", counted, likes)
	})
	s.drain(time.Minute)
	s.auditBoth()
	s.readAll(schema.TopicLikes, func(rec *kgo.Record) {
		require.Equal(t, schema.KeyPartition(rec.Key, partitions), rec.Partition, "%s", rec.Key)
		require.False(t, strings.ContainsAny(string(rec.Key), `"{`), "%s", rec.Key)
	})
}

const sourceTopic = "shop.post_likes" // of the bridge in docs/security.md

func (s *system) createSource() {
	_, err := s.admin().CreateTopic(s.t.Context(), 1, int16(s.replication), nil, sourceTopic)
	require.NoError(s.t, err)
}

// change writes an inserted row to the source, and a record that is none.
func (s *system) change(post, user uint64) {
	key := fmt.Appendf(nil, `{"post_id":%d,"user_id":%d}`, post, user)
	value := fmt.Appendf(nil, `{"op":"c","after":%s,"source":{"ts_ms":%d}}`, key, time.Now().UnixMilli())
	s.write(&kgo.Record{Topic: sourceTopic, Key: key, Value: value},
		&kgo.Record{Topic: sourceTopic, Key: key, Value: []byte("not a change")})
}

// deaf returns the URL of a webhook that takes nothing.
func deaf(t testing.TB) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
	}))
	t.Cleanup(server.Close)
	return server.URL
}
