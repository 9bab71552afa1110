package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// auditReport has the fields of the report that these tests check.
type auditReport struct {
	Equal bool
	Posts struct {
		Compared, Different int64
		Rows                []struct {
			PostID        uint64 `json:"post_id,string"`
			MySQL, Stream struct{ Likes, Dislikes int64 }
		}
	}
	Hours struct {
		Compared, Different int64
		Rows                []struct {
			Hour          time.Time
			Region        string
			Partition     int32
			MySQL, Stream struct{ Likes, Dislikes int64 }
		}
	}
	State  struct{ Compared, Different int64 }
	Strays struct {
		Different int64
		Rows      []strayRow
	}
	Problems []string
}

type strayRow struct {
	Table, Row                string
	Partition, Shard, Belongs int32
}

func (s *system) audit(code int, args ...string) (r auditReport) {
	s.report(&r, code, s.on(append([]string{"audit", "--output", "json"}, args...)...)...)
	return r
}

func (s *system) auditBoth() { s.audit(0); s.audit(0, "--deep") }

// Audits are right while likes arrive and processors come and go, and name exactly what is wrong when something is.
func TestAuditWhileLikesPourIn(t *testing.T) {
	s := verified(t)
	// Small batches put MySQL's position inside transactions of the fold, and between many.
	processor := s.processor("processor-0", "--set", "processor.max_batch=700").start()
	stop := s.keepCounting(1)
	for round := range 3 {
		plain, deep := s.audit(0), s.audit(0, "--deep")
		require.Greater(t, plain.Posts.Compared, int64(2000))
		require.GreaterOrEqual(t, deep.Posts.Compared, plain.Posts.Compared)
		require.Greater(t, deep.Hours.Compared, int64(100))
		require.Greater(t, deep.State.Compared, int64(2000))
		if round == 1 {
			processor.kill()
			s.auditBoth()
			processor.start()
		}
	}
	// Damage rows while counting continues. Deltas are added to the current value, so the rows stay wrong.
	s.db.MustExec("UPDATE like_count SET `count` = `count` + 1000000 WHERE post_id = 7")
	gone, counted := s.goneRow()
	s.db.MustExec("UPDATE like_hourly SET dislikes = dislikes - 500000 ORDER BY hour, region, partition_id LIMIT 1")
	hour := queryRow[struct {
		Hour      string `db:"h"`
		Region    string
		Partition int32 `db:"partition_id"`
	}](t, s.db, "SELECT DATE_FORMAT(hour, '%Y-%m-%d %H') h, region, partition_id FROM like_hourly "+
		"WHERE dislikes < -100000")
	s.db.MustExec("INSERT INTO like_hourly VALUES ('2020-01-01 00:00:00', 'DE', 99, 1, 1)")
	for _, args := range [][]string{nil, {"--deep"}} {
		deep := args != nil
		r := s.audit(3, args...)
		require.False(t, r.Equal)
		require.Len(t, r.Posts.Rows, 2, "%+v", r.Posts.Rows)
		require.EqualValues(t, 2, r.Posts.Different)
		for _, row := range r.Posts.Rows {
			switch row.PostID {
			case 7:
				require.EqualValues(t, 1_000_000, row.MySQL.Likes-row.Stream.Likes)
				require.Equal(t, row.Stream.Dislikes, row.MySQL.Dislikes)
			case gone:
				require.Equal(t, counted, count{row.Stream.Likes - row.MySQL.Likes,
					row.Stream.Dislikes - row.MySQL.Dislikes})
			default:
				t.Fatalf("unexpected difference for post %d", row.PostID)
			}
		}
		if !deep {
			// like_hourly is compared by totals: it differs itself, or because like_count does.
			require.NotEmpty(t, r.Problems)
			continue
		}
		require.Len(t, r.Problems, 1)
		require.Contains(t, r.Problems[0], "like_hourly has a row of partition 99")
		require.Len(t, r.Hours.Rows, 1, "%+v", r.Hours.Rows)
		row := r.Hours.Rows[0]
		require.Equal(t, hour.Hour, row.Hour.Format("2006-01-02 15"))
		require.Equal(t, hour.Region, row.Region)
		require.Equal(t, hour.Partition, row.Partition)
		require.EqualValues(t, -500_000, row.MySQL.Dislikes-row.Stream.Dislikes)
	}
	t.Logf("events %d", stop())
	s.drain(time.Minute)
	out := s.exits(3, s.on("audit", "--deep")...)
	require.Contains(t, out.stdout, "2 of ")
	require.Contains(t, out.stdout, "kudos rebuild")
	require.Contains(t, out.stderr, "reading the state table")
}

// goneRow deletes a row of like_count with likes, and returns it.
func (s *system) goneRow() (post uint64, c count) {
	tx := s.db.MustBegin()
	row := tx.QueryRow("SELECT post_id, `count`, dislike_count FROM like_count WHERE post_id <> 7 AND `count` > 5 " +
		"LIMIT 1 FOR UPDATE")
	require.NoError(s.t, row.Scan(&post, &c.likes, &c.dislikes))
	tx.MustExec(fmt.Sprintf("DELETE FROM like_count WHERE post_id = %d", post))
	require.NoError(s.t, tx.Commit())
	return post, c
}
