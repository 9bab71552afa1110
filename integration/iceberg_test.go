package integration

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"kudos/dev/testkit"
	"kudos/integration/stack"
	"kudos/integration/tier"
	"kudos/schema"
)

// TestIcebergTableHasEachChangeOnce: the archivers of a bucket commit its files to a table, also after a pause.
// PyIceberg reads the table: each row, and each post's likes.
func TestIcebergTableHasEachChangeOnce(t *testing.T) {
	tier.Verify(t)
	python := pythonFor(t, "iceberg/requirements.txt")
	s := newBucket(t, "lake", "--set", "archive.iceberg.catalog=mysql")
	s.settings = append(s.settings, "--set", s.mysql())
	s.fails([]string{"archive", "--brokers", s.brokerList(), "--set", "archive.iceberg.catalog=mysql"},
		"this build has no client of Iceberg")
	s.produce(schema.Event{PostID: math.MaxUint64, UserID: 1, Action: schema.Like, TimeMs: time.Now().UnixMilli()})
	random := rand.New(rand.NewPCG(3, 4))
	s.strike(t, tier.Limited(150_000, 50_000), 1000, func(*archiver) {
		pause(t, time.Duration(random.IntN(500))*time.Millisecond)
	})
	read := func() map[archivedName]archived { return s.readIceberg(t, python, s.store) }
	s.requireRows(t, read)
	likes := map[uint64]int64{}
	for _, row := range read() {
		likes[row.PostID] += row.Likes
	}
	for _, post := range s.likeCounts() {
		require.Equal(t, post.Count, likes[post.ID], "likes of post %d", post.ID)
		delete(likes, post.ID)
	}
	require.Empty(t, likes)
	require.Equal(t, fmt.Sprintln(s.likes()), s.example(t, python, s.store))
	s.requireExact()
}

// example runs the example of the docs. It returns the sum of the likes in what that reads.
func (s *system) example(t *testing.T, python string, store *stack.ObjectStore) string {
	_, code, found := strings.Cut(readText(t, "../docs/archive.md"), "```python\nfrom pyiceberg")
	require.True(t, found)
	code, _, _ = strings.Cut(code, "```")
	code = "from pyiceberg" + strings.Replace(code, "mysql+pymysql://reader:secret@db/lake", s.uri(t), 1) +
		"print(sum(changes['likes'].to_pylist()))"
	// Variables are another way to give what the docs name.
	t.Setenv("PYICEBERG_CATALOG__KUDOS__S3__ENDPOINT", store.URL)
	t.Setenv("PYICEBERG_CATALOG__KUDOS__S3__REGION", "us-east-1")
	out, err := exec.CommandContext(testkit.Within(t, time.Minute), python, "-c", code).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

func (s *system) likes() (sum int64) {
	for _, post := range s.likeCounts() {
		sum += post.Count
	}
	return sum
}

// uri is the database's, for SQLAlchemy.
func (s *system) uri(t *testing.T) string {
	at, err := mysql.ParseDSN(s.dsn)
	require.NoError(t, err)
	return fmt.Sprintf("mysql+pymysql://%s:%s@%s/%s", at.User, at.Passwd, at.Addr, at.DBName)
}

// likeCounts returns the posts with likes.
func (s *system) likeCounts() (posts []struct {
	ID    uint64 `db:"post_id"`
	Count int64  `db:"count"`
}) {
	require.NoError(s.t, s.db.Select(&posts, "SELECT post_id, count FROM like_count"))
	return posts
}

// readIceberg reads the table with PyIceberg.
func (s *system) readIceberg(t *testing.T, python string, store *stack.ObjectStore) map[archivedName]archived {
	file := filepath.Join(t.TempDir(), "rows.csv")
	runs(t, python, "iceberg/read.py", s.uri(t), store.URL, file)
	rows := map[archivedName]archived{}
	for line := range strings.Lines(readText(t, file)) {
		var r archived
		var written, minute int64
		_, err := fmt.Sscan(strings.ReplaceAll(line, ",", " "), &r.Partition, &r.Seq, &r.Index, &r.Offset, &written,
			&r.PostID, &r.Region, &minute, &r.Likes, &r.Dislikes, &r.PostLikes, &r.PostDislikes)
		require.NoError(t, err, line)
		r.Written, r.Minute = time.UnixMicro(written).UTC(), time.UnixMicro(minute).UTC()
		name := archivedName{r.Partition, r.Seq, r.Index}
		if _, twice := rows[name]; twice {
			require.FailNow(t, "duplicate row", line)
		}
		rows[name] = r
	}
	return rows
}
