package chaos

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/parquet-go/parquet-go"

	"kudos/integration/oracle"
	"kudos/integration/rankings"
	"kudos/schema"
)

const (
	followWithin = 90 * time.Second // bounds the wait for rankings and archive at rest
	rotate       = 5 * time.Second  // how long the archive keeps a file open, and the ranker changes to itself
	// rankedEvery: rankings are checked in the first episodes, and then in one of so many: each check reads everything.
	rankedEvery = 8
)

var rankingConfig = rankings.Config{Windows: []time.Duration{10 * time.Minute}, Lateness: 2 * time.Minute,
	Score: "count", TopN: 20, MinLikes: 1}

func rankersOf(s *system) []*unit { return s.rankers }

func archivesOf(s *system) []*unit { return s.archives }

// newFollower returns an archive, or a ranker. Windows follow the events only, not the clock.
func (s *system) newFollower(name, role string) (*unit, error) {
	u := &unit{state: filepath.Join(s.opts.Dir, name, "state")}
	args := []string{role, "--set", role + ".park_interval=1s"}
	if role == "archive" {
		args = append(args, "--set", "archive.dir="+u.state, "--set", "archive.rotate_interval="+rotate.String())
	} else {
		args = append(args, "--mysql-dsn", s.dsn(), "--set", "ranker.state_dir="+u.state,
			"--set", "ranker.windows=10m", "--set", "ranker.emit_interval="+rotate.String(),
			"--set", fmt.Sprintf("ranker.top_n=%d", rankingConfig.TopN), "--set", "ranker.idle_after=24h",
			"--set", "ranker.session_timeout="+sessionTimeout.String(), "--set", "ranker.cache_bytes=33554432",
			"--set", "ranker.transaction_timeout="+transactionTimeout.String())
	}
	return u, s.program(u, name, args...)
}

// checkFollowers waits until rankings and archive reflect the whole log, and compares.
func (r *run) checkFollowers(ctx context.Context, e *episode) error {
	for _, check := range []func(context.Context, *episode) (oracle.Differences, error){r.checkArchive, r.checkRankings} {
		for end := time.Now().Add(followWithin); ; {
			d, err := check(ctx, e)
			if err != nil {
				return err
			}
			if d.Total == 0 || time.Now().After(end) {
				e.diffs.Total += d.Total
				e.diffs.Details = append(e.diffs.Details, d.Details...)
				break
			}
			if err := wait(ctx, time.Second); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *run) checkRankings(ctx context.Context, e *episode) (d oracle.Differences, _ error) {
	if e.number > rankedEvery && e.number%rankedEvery > 0 {
		return d, nil
	}
	log, err := rankings.Read(ctx, r.sys.kafka.Brokers())
	if err != nil {
		return d, err
	}
	result, err := rankings.Check(log, rankingConfig, &rankings.End{Idle: schema.NoMinute})
	if err != nil {
		return d, err
	}
	e.said["rankings compared (all in the topic, at each check)"] = result.Rankings
	return result.Differences, nil
}

type archivedRow struct {
	Partition int32     `parquet:"partition"`
	Seq       uint64    `parquet:"seq"`
	Index     int32     `parquet:"index"`
	PostID    uint64    `parquet:"post_id"`
	Region    string    `parquet:"region"`
	Minute    time.Time `parquet:"minute,timestamp(millisecond)"`
	Likes     int64     `parquet:"likes"`
	Dislikes  int64     `parquet:"dislikes"`
}

// checkArchive compares the archive with like-updates: the number of rows and their sums. Each row of a partition must
// come after the one before it, so none is there twice.
func (r *run) checkArchive(_ context.Context, e *episode) (d oracle.Differences, _ error) {
	files, err := filepath.Glob(filepath.Join(r.sys.archives[0].state, "hour=*", "*.parquet"))
	if err != nil {
		return d, err
	}
	// Their names are the partition and the offsets.
	slices.SortFunc(files, func(a, b string) int { return cmp.Compare(filepath.Base(a), filepath.Base(b)) })
	last, sums, n := map[int32]archivedRow{}, map[oracle.Cell]oracle.Count{}, int64(0)
	for _, file := range files {
		rows, err := parquet.ReadFile[archivedRow](file)
		if err != nil {
			return d, fmt.Errorf("reading the archive: %s: %w", file, err)
		}
		for _, row := range rows {
			before, found := last[row.Partition]
			if found && cmp.Or(cmp.Compare(row.Seq, before.Seq), cmp.Compare(row.Index, before.Index)) <= 0 {
				d.Add("archive", "%s has %+v after %+v", file, row, before)
			}
			last[row.Partition] = row
			oracle.Add(sums, oracle.Cell{Post: row.PostID, Region: row.Region, Minute: row.Minute.Unix() / 60},
				oracle.Count{Likes: row.Likes, Dislikes: row.Dislikes})
		}
		n += int64(len(rows))
	}
	want, deltas := r.oracle.Deltas()
	if n != deltas {
		d.Add("archive", "the archive has %d rows, like-updates has %d deltas", n, deltas)
	}
	oracle.Compare(&d, "archive", "sums of the archive", want, sums)
	e.said["rows of the archive compared (all, at each check)"] = int(n)
	return d, nil
}
