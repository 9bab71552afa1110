package chaos

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/parquet-go/parquet-go"

	"kudos/archive"
	"kudos/integration/oracle"
	"kudos/integration/rankings"
	"kudos/schema"
)

const (
	readers    = 3
	replicas   = 2
	askEvery   = 50 * time.Millisecond // between rounds of questions to each reader
	neverLiked = 1 << 40

	followWithin = 90 * time.Second // bounds the wait for rankings and archive at rest
	rotate       = 5 * time.Second  // how long the archive keeps a file open, and the ranker changes to itself
	rankedEvery  = 8                // rankings are checked in so many first episodes, then in one of so many
)

var rankingConfig = rankings.Config{Windows: []time.Duration{10 * time.Minute}, Lateness: 2 * time.Minute,
	Score: "count", TopN: 20, MinLikes: 1}

// askedPosts are popular and unpopular ones, in several partitions.
var askedPosts = []uint64{1, 2, 3, 5, 8, 34, 144, neverLiked}

// newReader returns a reader that shares reactions with the others. One keeps the history of counts, too.
func (s *system) newReader(i int) (*unit, error) {
	at, err := s.reserve()
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("reader-%d", i)
	u := &unit{base: "http://" + at, state: filepath.Join(s.opts.Dir, name, "state")}
	args := []string{"reader", "--set", "reader.http_addr=" + at, "--set", "reader.advertised_url=" + u.base,
		"--set", fmt.Sprintf("reader.replicas=%d", replicas),
		"--set", "reader.state_dir=" + u.state, "--set", "reader.cache_bytes=33554432",
		"--set", "reader.session_timeout=" + sessionTimeout.String(), "--set", "reader.shutdown_timeout=5s"}
	if i == 0 {
		args = append(args, "--set", "reader.history=24h")
	}
	return u, s.program(u, name, args...)
}

func (s *system) bases() (list []string) {
	for _, u := range s.readers {
		list = append(list, u.base)
	}
	return list
}

// asked is what the readers say during an episode.
type asked struct {
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu      sync.Mutex
	watched []*oracle.Watched
	failed  []error
}

// askReaders queries each reader and follows a stream of it, until stop is called or ctx ends.
func (r *run) askReaders(ctx context.Context) *asked {
	a := &asked{}
	ctx, a.cancel = context.WithCancel(ctx)
	begin := map[*unit]int64{}
	for _, u := range r.sys.readers {
		begin[u] = u.logSize()
	}
	keep := func(u *unit, w *oracle.Watched, err error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		// A reader that starts with views from before a repartition has yet to hear that its moves are over.
		w.Shared, w.Migrating = true, strings.Contains(u.logSince(begin[u]), "posts have moved to other partitions")
		a.watched = append(a.watched, w)
		if err != nil && ctx.Err() == nil {
			r.opts.Log.Error("a reader failed", "server", u.String(), "error", err)
			a.failed = append(a.failed, fmt.Errorf("%v: %w", u, err))
		}
	}
	users := make([]uint64, shape().Users)
	for i := range users {
		users[i] = uint64(i + 1)
	}
	for _, u := range r.sys.readers {
		a.work.Go(func() {
			w, err := oracle.Watch(ctx, u.base, askedPosts, users, r.opts.Partitions, askEvery)
			keep(u, w, err)
		})
		a.work.Go(func() {
			never := func(map[uint64]oracle.Count) bool { return false }
			w, err := oracle.Follow(ctx, []string{u.base}, askedPosts, never)
			keep(u, w, err)
		})
	}
	return a
}

func (a *asked) stop() { a.cancel(); a.work.Wait() }

// readersLeft says what is missing when the timeout ends: "" if readers have read everything and all have replicas.
func (r *run) readersLeft(ctx context.Context, timeout time.Duration) (left string, err error) {
	for end := time.Now().Add(timeout); ; {
		var behind []string
		kept, err := oracle.Kept(ctx, r.sys.bases()...)
		if err != nil {
			behind = append(behind, err.Error())
		}
		for p := range r.opts.Partitions {
			if kept[p] != replicas {
				behind = append(behind, fmt.Sprintf("%d readers keep the reactions of partition %d", kept[p], p))
			}
		}
		for _, u := range r.sys.readers {
			asking, cancel := context.WithTimeout(ctx, 30*time.Second)
			text, err := r.oracle.ReaderLeft(asking, u.base)
			cancel()
			if err != nil {
				text = err.Error()
			}
			if text != "" {
				behind = append(behind, u.String()+": "+text)
			}
		}
		if left = strings.Join(behind, "; "); left == "" || time.Now().After(end) {
			return left, nil
		}
		if err := wait(ctx, 200*time.Millisecond); err != nil {
			return "", err
		}
	}
}

// checkReaders compares what the readers said during the episode, and what they say now that all is at rest. While a
// torn transaction is repaired, positions go back.
func (r *run) checkReaders(ctx context.Context, e *episode, a *asked) error {
	for _, err := range a.failed {
		e.diffs.Add("I8", "%v", err)
	}
	watched := a.watched
	for _, w := range watched {
		w.Migrating = w.Migrating || slices.ContainsFunc(slices.Concat(e.faults, e.missed),
			func(f *fault) bool { return f.kind.name == "repartition" })
	}
	if e.torn != "" {
		watched = nil
	}
	result, err := r.replay.Check(ctx, watched...)
	if err != nil {
		return fmt.Errorf("comparing what readers said: %w", err)
	}
	e.hear(result, "during faults")
	for _, w := range watched {
		e.said["reader requests and streams without an answer"] += w.Unavailable
		e.said["streams opened"] += w.Streams
	}
	for _, u := range r.sys.readers {
		result, err := r.oracle.Reader(ctx, u.base, oracle.Sample)
		if err != nil {
			e.diffs.Add("I7", "%v does not answer: %v", u, err)
			continue
		}
		e.hear(result, "at rest")
	}
	return nil
}

func (e *episode) hear(result *oracle.ReaderResult, when string) {
	e.diffs.Total += result.Differences.Total
	e.diffs.Details = append(e.diffs.Details, result.Differences.Details...)
	for kind, n := range result.Kinds {
		e.said[fmt.Sprintf("reader answers compared %s: %s", when, kind)] += n
	}
}

// newFollower returns an archive, or a ranker, whose windows follow the events and not the clock.
func (s *system) newFollower(name string) (*unit, error) {
	u := &unit{state: filepath.Join(s.opts.Dir, name, "state")}
	role, _, _ := strings.Cut(name, "-")
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
func (r *run) checkFollowers(ctx context.Context, e *episode) (err error) {
	type check = func(context.Context, *episode) (oracle.Differences, error)
	for _, check := range []check{r.checkArchive, r.checkRankings} {
		var d oracle.Differences
		_ = waitUntil(ctx, followWithin, "", func() bool { // what it waits for is in d
			d, err = check(ctx, e)
			return err != nil || d.Total == 0 || wait(ctx, time.Second) != nil
		})
		e.diffs.Total += d.Total
		if e.diffs.Details = append(e.diffs.Details, d.Details...); err != nil {
			return err
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
	e.said["rankings compared"] = result.Rankings
	return result.Differences, nil
}

// checkArchive compares the archive with like-updates: the number of rows and their sums. Each row of a partition must
// come after the one before it, so none is there twice.
func (r *run) checkArchive(_ context.Context, e *episode) (d oracle.Differences, _ error) {
	files, _ := filepath.Glob(filepath.Join(r.sys.of("archive")[0].state, "hour=*", "*.parquet")) // a valid pattern
	// Their names are the partition and the offsets.
	slices.SortFunc(files, func(a, b string) int { return cmp.Compare(filepath.Base(a), filepath.Base(b)) })
	last, sums, n := map[int32]archive.Row{}, map[oracle.Cell]oracle.Count{}, int64(0)
	for _, file := range files {
		rows, err := parquet.ReadFile[archive.Row](file)
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
	e.said["rows of the archive compared"] = int(n)
	return d, nil
}
