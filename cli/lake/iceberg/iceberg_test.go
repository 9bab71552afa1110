package iceberg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/catalog"
	"github.com/apache/iceberg-go/table"
	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"

	"kudos/archive"
	"kudos/dev/testkit"
	"kudos/integration/stack"
	"kudos/sql"
)

// folder is a Store, as far as a Table needs it.
type folder struct {
	archive.Store
	dir string
}

func (f folder) List(directory, prefix string) (names []string, err error) {
	entries, err := os.ReadDir(filepath.Join(f.dir, directory))
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// write writes a file with a row for each offset.
func (f folder) write(t *testing.T, partition int32, from, to int64) (name string) {
	at := time.Date(2026, 11, 21, int(from%24), 30, 0, 0, time.UTC)
	var rows []archive.Row
	for offset := from; offset < to; offset++ {
		rows = append(rows, archive.Row{Partition: partition, Seq: uint64(offset), Offset: offset, Written: at})
	}
	var text bytes.Buffer
	w := (*Table)(nil).NewWriter(&text)
	_, err := w.Write(rows)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	name = fmt.Sprintf("hour=%s/p%d-%020d-%020d.parquet", at.Format("2006-01-02T15"), partition, from, to)
	file := filepath.Join(f.dir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, text.Bytes(), 0o644))
	return name
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

type world struct {
	folder
	opts  archive.Options
	mysql sql.Options
}

func newWorld(t *testing.T, database *stack.Database) *world {
	w := &world{opts: archive.DefaultOptions(), mysql: sql.DefaultOptions()}
	w.dir = filepath.Join(t.TempDir(), "archive")
	w.opts.Dir, w.opts.Iceberg.Catalog = w.dir, "mysql"
	w.mysql.DSN = database.NewDatabase(t)
	require.NoError(t, os.Mkdir(w.dir, 0o755))
	return w
}

// open is a process's Table.
func (w *world) open(t *testing.T) *Table {
	opened, err := Open(w.opts, w.mysql, quiet)
	require.NoError(t, err)
	t.Cleanup(func() { opened.(*Table).db.Close() })
	return opened.(*Table)
}

func (w *world) commit(t *testing.T, of *Table, names ...string) {
	t.Helper()
	of.Add(names)
	require.NoError(t, of.commitAll(testkit.Within(t, time.Minute), w))
	require.NoError(t, of.Ready())
}

// load is what another process finds in the catalog.
func (w *world) load(t *testing.T) *table.Table {
	t.Helper()
	current, err := w.open(t).load(t.Context())
	require.NoError(t, err)
	return current
}

// files returns the files of the table, which has each once.
func (w *world) files(t *testing.T) (names []string) {
	t.Helper()
	tasks, err := w.load(t).Scan().PlanFiles(t.Context())
	require.NoError(t, err)
	for _, task := range tasks {
		name := strings.TrimPrefix(task.File.FilePath(), "file://"+w.dir+"/")
		require.NotContains(t, names, name)
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// others commits a snapshot that has nothing of kudos.
func (w *world) others(t *testing.T) {
	tx := w.load(t).NewTransaction()
	result, err := tx.RewriteManifests(t.Context())
	require.NoError(t, err)
	require.False(t, result.IsNoOp())
	_, err = tx.Commit(t.Context())
	require.NoError(t, err)
}

// overtaken is a catalog that gets another commit while it writes one. The client would do its own again, after that.
type overtaken struct {
	catalog.Catalog
	by func()
}

func (c *overtaken) LoadTable(ctx context.Context, name table.Identifier) (*table.Table, error) {
	found, err := c.Catalog.LoadTable(ctx, name)
	if err != nil {
		return nil, err
	}
	return table.New(name, found.Metadata(), found.MetadataLocation(), found.FS, c), nil
}

// unanswered is a catalog whose answer to the creation of a table is lost. Its client removes the table's metadata.
type unanswered struct{ catalog.Catalog }

func (c unanswered) CreateTable(ctx context.Context, name table.Identifier, fields *iceberg.Schema,
	options ...catalog.CreateTableOpt) (*table.Table, error) {
	created, err := c.Catalog.CreateTable(ctx, name, fields, options...)
	if err != nil {
		return nil, err
	}
	files, err := created.FS(ctx)
	if err != nil {
		return nil, err
	}
	return nil, errors.Join(errors.New("no answer"), files.Remove(created.MetadataLocation()))
}

func (c *overtaken) CommitTable(ctx context.Context, name table.Identifier, requirements []table.Requirement,
	updates []table.Update) (table.Metadata, string, error) {
	if c.by != nil {
		c.by()
		c.by = nil
		return nil, "", table.ErrCommitFailed
	}
	return c.Catalog.CommitTable(ctx, name, requirements, updates)
}

// TestColumns fixes the types and ids of the columns in files, and their values.
func TestColumns(t *testing.T) {
	require.Equal(t, strings.TrimSpace(`
message row {
	required int32 partition (INT(32,true)) = 1;
	required int64 seq (INT(64,true)) = 2;
	required int32 index (INT(32,true)) = 3;
	required int64 offset (INT(64,true)) = 4;
	required int64 written (TIMESTAMP(isAdjustedToUTC=true,unit=MICROS)) = 5;
	required fixed_len_byte_array(9) post_id (DECIMAL(20,0)) = 6;
	required binary region (STRING) = 7;
	required int64 minute (TIMESTAMP(isAdjustedToUTC=true,unit=MICROS)) = 8;
	required int64 likes (INT(64,true)) = 9;
	required int64 dislikes (INT(64,true)) = 10;
	required int64 post_likes (INT(64,true)) = 11;
	required int64 post_dislikes (INT(64,true)) = 12;
}`), parquet.SchemaOf(row{}).String())
	of := archive.Row{Partition: 1, Seq: 2, Index: 3, Offset: 4, Written: time.Unix(5, 0), PostID: math.MaxUint64,
		Region: "DE", Minute: time.Unix(60, 0), Likes: -7, Dislikes: 8, PostLikes: 9, PostDislikes: 10}
	var text bytes.Buffer
	w := (*Table)(nil).NewWriter(&text)
	for range 2 {
		n, err := w.Write([]archive.Row{of})
		require.NoError(t, err)
		require.Equal(t, 1, n)
	}
	require.NoError(t, w.Close())
	rows, err := parquet.Read[row](bytes.NewReader(text.Bytes()), int64(text.Len()))
	require.NoError(t, err)
	want := row{Partition: 1, Seq: 2, Index: 3, Offset: 4, Written: 5_000_000, Region: "DE", Minute: 60_000_000,
		Likes: -7, Dislikes: 8, PostLikes: 9, PostDislikes: 10,
		PostID: [9]byte{0, 255, 255, 255, 255, 255, 255, 255, 255}}
	require.Equal(t, []row{want, want}, rows)
}

func TestTable(t *testing.T) {
	database := stack.MariaDBForTest(t, stack.DatabaseOptions{})
	test := func(name string, run func(*testing.T, *world)) {
		t.Run(name, func(t *testing.T) { run(t, newWorld(t, database)) })
	}
	test("each file gets into it once", func(t *testing.T, w *world) {
		of, a := w.open(t), w.write(t, 3, 10, 20)
		require.Equal(t, []string{a}, of.Left([]string{a}))
		w.commit(t, of, a)
		b := w.write(t, 3, 20, 25)
		require.Equal(t, []string{b}, of.Left([]string{a, b}))
		c := w.write(t, 4, 15, 16) // another partition: its offsets are its own
		for range 2 {
			w.commit(t, of, b, a, c)
			require.Empty(t, of.Left([]string{a, b, c}))
			of = w.open(t) // it was killed, and its positions still name the files
		}
		require.Equal(t, []string{a, c, b}, w.files(t))
	})
	test("two processes", func(t *testing.T, w *world) {
		var names []string
		for i := range int64(30) {
			names = append(names, w.write(t, int32(i%2), 10*i, 10*i+5))
		}
		slices.Sort(names)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var running sync.WaitGroup
		for range 2 {
			of := w.open(t)
			running.Go(func() {
				for i := range names {
					of.Add(names[:i+1])
					for of.commitAll(ctx, w) != nil && ctx.Err() == nil {
					}
				}
			})
		}
		running.Wait()
		require.Equal(t, names, w.files(t))
	})
	test("commits of others", func(t *testing.T, w *world) {
		of, a := w.open(t), w.write(t, 3, 0, 10)
		w.commit(t, of, a)
		b := w.write(t, 3, 10, 20)
		w.commit(t, of, b)
		w.others(t)
		c := w.write(t, 3, 20, 30)
		w.commit(t, w.open(t), a, b, c)
		require.Equal(t, []string{a, b, c}, w.files(t))
	})
	test("a commit while it commits", func(t *testing.T, w *world) {
		of, a := w.open(t), w.write(t, 3, 0, 10)
		w.commit(t, of, a)
		tx := w.load(t).NewTransaction()
		require.NoError(t, tx.SetProperties(iceberg.Properties{table.CommitNumRetriesKey: "4"}))
		_, err := tx.Commit(t.Context())
		require.NoError(t, err)
		b := w.write(t, 3, 10, 20)
		of.catalog = &overtaken{of.catalog, func() { w.commit(t, w.open(t), b) }}
		of.Add([]string{b})
		require.ErrorIs(t, of.commitAll(t.Context(), w), table.ErrCommitFailed)
		w.commit(t, of)
		require.Equal(t, []string{a, b}, w.files(t))
	})
	test("a new table has all of the archive's files", func(t *testing.T, w *world) {
		names := []string{w.write(t, 3, 0, 10), w.write(t, 3, 10, 20), w.write(t, 4, 7, 8)}
		require.NoError(t, os.WriteFile(filepath.Join(w.dir, "hour=2026-11-21T00", "other"), nil, 0o600))
		slices.Sort(names)
		of := w.open(t)
		w.commit(t, of)
		require.Equal(t, names, w.files(t))
		require.NoError(t, of.catalog.DropTable(t.Context(), catalog.ToIdentifier(w.opts.Iceberg.Table)))
		w.commit(t, of) // it still has the offsets of the old one
		require.Equal(t, names, w.files(t))
		require.Empty(t, of.Left(names))
	})
	test("many files take several commits", func(t *testing.T, w *world) {
		var names []string
		for i := range int64(commitFiles + 1) {
			names = append(names, w.write(t, 3, i, i+1))
		}
		w.commit(t, w.open(t), names...)
		slices.Sort(names)
		require.Equal(t, names, w.files(t))
		require.Len(t, w.load(t).Metadata().Snapshots(), 2)
	})
	test("the offsets expired", func(t *testing.T, w *world) {
		names := []string{w.write(t, 3, 0, 10)}
		w.commit(t, w.open(t), names...)
		names = append(names, w.write(t, 3, 10, 20))
		w.commit(t, w.open(t), names...)
		w.others(t)
		tx := w.load(t).NewTransaction()
		require.NoError(t, tx.ExpireSnapshots(table.WithOlderThan(0), table.WithRetainLast(1)))
		_, err := tx.Commit(t.Context())
		require.NoError(t, err)
		names = append(names, w.write(t, 3, 20, 30))
		w.commit(t, w.open(t), names...)
		require.Equal(t, names, w.files(t))
	})
	test("a table that kudos did not fill", func(t *testing.T, w *world) {
		of := w.open(t)
		w.commit(t, of)
		name := w.write(t, 3, 0, 10)
		tx := w.load(t).NewTransaction()
		require.NoError(t, tx.AddFiles(t.Context(), []string{"file://" + w.dir + "/" + name}, nil, true))
		_, err := tx.Commit(t.Context())
		require.NoError(t, err)
		require.ErrorContains(t, of.commitAll(t.Context(), w), "it has no properties kudos.offset.…")
		require.ErrorContains(t, of.Ready(), "name another table, or drop it, but not its files")
	})
	test("the answer is lost when it is created", func(t *testing.T, w *world) {
		of, name := w.open(t), w.write(t, 3, 0, 10)
		_, err := of.load(t.Context())
		require.NoError(t, err)
		identifier := catalog.ToIdentifier(w.opts.Iceberg.Table)
		require.NoError(t, of.catalog.DropTable(t.Context(), identifier))
		answering := of.catalog
		of.catalog = unanswered{answering}
		require.ErrorContains(t, of.commitAll(t.Context(), w), "no answer")
		of.catalog = answering
		w.commit(t, of)
		require.Equal(t, []string{name}, w.files(t))

		require.NoError(t, os.RemoveAll(filepath.Join(w.dir, tableDirectory)))
		require.ErrorContains(t, of.commitAll(t.Context(), w), "its metadata is lost: drop the table")
		require.NoError(t, of.catalog.DropTable(t.Context(), identifier))
		w.commit(t, of)
		require.Equal(t, []string{name}, w.files(t))
	})
	test("another archive's table", func(t *testing.T, w *world) {
		w.commit(t, w.open(t))
		w.opts.Dir += "-2"
		err := w.open(t).commitAll(t.Context(), w)
		require.ErrorContains(t, err, "it is at file://"+w.dir+"/_iceberg, "+
			"not in archive.dir (file://"+w.dir+"-2/_iceberg)")
	})
	test("no catalog", func(t *testing.T, w *world) {
		w.mysql.DSN = "nobody:secret@tcp(127.0.0.1:1)/x"
		of := w.open(t)
		of.Add([]string{w.write(t, 3, 0, 10)})
		require.Error(t, of.commitAll(t.Context(), w))
		require.ErrorContains(t, of.Ready(), "archive.iceberg.table kudos.changes: the catalog in MySQL")
		require.NotContains(t, of.Ready().Error(), "secret")
	})
	test("settings", func(t *testing.T, w *world) {
		_, err := Open(w.opts, sql.DefaultOptions(), quiet)
		require.ErrorContains(t, err, "mysql.dsn is not set")
		w.opts.Dir = "/with space"
		_, err = Open(w.opts, w.mysql, quiet)
		require.ErrorContains(t, err, "archive.dir: /with space has characters that URLs don't have")
	})
}
