// Package iceberg makes the files of an archive those of an Iceberg table, whose catalog is in MySQL.
//
// A commit adds files. Properties of its snapshot, and of the table, are the offsets of like-updates up to which each
// partition's files are in the table; the next commit resumes there. It fails if there was another commit since it read
// them. So each file gets into the table once, whatever is killed and whoever else commits.
//
// The table's location is a directory in the archive's: jobs that remove orphan files do not find those of the archive.
package iceberg

import (
	"cmp"
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/catalog"
	sqlcatalog "github.com/apache/iceberg-go/catalog/sql"
	"github.com/apache/iceberg-go/table"

	"kudos/archive"
	"kudos/sql"
	"kudos/stream/kafka"
)

const (
	offsetProperty = "kudos.offset." // and a partition
	collectGarbage = "gc.enabled"
	commitFiles    = 200 // at most, in one commit
	readFiles      = 8   // concurrently, for their statistics
	commitTimeout  = 2 * time.Minute
	lastTimeout    = 30 * time.Second // of all commits at shutdown
	tableDirectory = "_iceberg"
)

// Table is an archive.Table.
type Table struct {
	opts    archive.Options
	db      *stdsql.DB
	archive string      // its URL
	keep    atomic.Bool // files that Iceberg removes
	log     *slog.Logger

	// Of Run.
	catalog catalog.Catalog // nil until it could be opened
	listed  bool            // the archive's files are waiting

	mu      sync.Mutex
	waiting map[int32][]file // by partition: those not in the table yet, in order
	reached map[int32]int64  // by partition: the offset up to which files are in the table, as last read
	failure error            // of the last commit
}

// file is a finished file, with the offsets that its name has.
type file struct {
	name     string
	from, to int64
}

func fileOf(name string) (f file, partition int32, ok bool) {
	f.name = name
	_, err := fmt.Sscanf(path.Base(name), "p%d-%d-%d.parquet", &partition, &f.from, &f.to)
	return f, partition, err == nil && strings.HasSuffix(name, ".parquet")
}

// Open returns the table of an archive. It does no I/O.
func Open(o archive.Options, mysql sql.Options, log *slog.Logger) (archive.Table, error) {
	if !mysql.HasServer() {
		return nil, errors.New("archive.iceberg.catalog is mysql, but mysql.dsn is not set")
	}
	connector, err := mysql.Each()[0].Connector(log)
	if err != nil {
		return nil, err
	}
	t := &Table{opts: o, log: log, waiting: map[int32][]file{}, reached: map[int32]int64{}}
	if t.archive, err = registerFiles(o, &t.keep); err != nil {
		return nil, err
	}
	t.db = stdsql.OpenDB(connector)
	return t, nil
}

// Add implements archive.Table.
func (t *Table) Add(names []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range names {
		f, partition, ok := fileOf(name)
		known := t.waiting[partition]
		at, found := slices.BinarySearchFunc(known, f, func(a, b file) int { return cmp.Compare(a.from, b.from) })
		if ok && !found {
			t.waiting[partition] = slices.Insert(known, at, f)
		}
	}
}

// Left implements archive.Table.
func (t *Table) Left(names []string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		f, partition, _ := fileOf(name)
		return f.from < t.reached[partition]
	})
}

// Ready implements archive.Table.
func (t *Table) Ready() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failure
}

// Run implements archive.Table.
func (t *Table) Run(ctx context.Context, store archive.Store) {
	defer t.db.Close()
	for ctx.Err() == nil {
		wait := t.opts.RotateInterval
		if err := t.commitAll(ctx, store); err != nil && ctx.Err() == nil {
			wait = t.opts.ParkInterval
			t.log.Warn("committing to the Iceberg table failed", "error", err, "retry_in", wait)
		}
		kafka.Sleep(ctx, wait)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTimeout)
	defer cancel()
	if err := t.commitAll(ctx, store); err != nil {
		t.log.Warn("the last files are not in the Iceberg table yet; the next start adds them", "error", err)
	}
}

func (t *Table) commitAll(ctx context.Context, store archive.Store) (err error) {
	for more := true; more && err == nil; {
		more, err = t.commit(ctx, store)
	}
	if err != nil {
		err = fmt.Errorf("archive.iceberg.table %s: %w", t.opts.Iceberg.Table, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failure = err
	return err
}

// commit adds waiting files to the table. It returns whether there are more.
func (t *Table) commit(ctx context.Context, store archive.Store) (more bool, err error) {
	within, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	current, err := t.load(within)
	if err != nil {
		return false, err
	}
	reached, found := offsetsOf(current)
	switch {
	case found:
	case current.CurrentSnapshot() != nil:
		return false, errors.New("it has no properties kudos.offset.…, so it is not what kudos created: " +
			"name another table, or drop it, but not its files, and the archive's files are added to a new one")
	case !t.listed: // which can take longer than a commit
		err := t.list(ctx, store)
		t.listed = err == nil
		return t.listed, err
	}
	files, count := t.next(reached)
	if len(files) == 0 {
		return false, nil
	}
	if err := t.add(within, current, files, reached); err != nil {
		return false, err
	}
	t.next(reached)
	t.listed = false // should the table be dropped
	t.log.Info("files are in the Iceberg table", "table", t.opts.Iceberg.Table, "files", len(files))
	return count > len(files), nil
}

// add commits files, and what they reach, to the table as it was read.
func (t *Table) add(ctx context.Context, current *table.Table, files []string, reached map[int32]int64) error {
	properties := iceberg.Properties{}
	for partition, offset := range reached {
		properties[offsetProperty+strconv.Itoa(int(partition))] = strconv.FormatInt(offset, 10)
	}
	tx := current.NewTransaction()
	if err := tx.AssertRefSnapshotID(table.MainBranch); err != nil {
		return err
	}
	// The offsets decide which files are in the table: to search it for each would take longer from commit to commit.
	err := tx.AddFiles(ctx, files, properties, true, table.WithAddFilesConcurrency(readFiles))
	if err == nil {
		err = tx.SetProperties(properties)
	}
	// Otherwise the table's metadata grows without limit. Files are left to the owner's maintenance of tables.
	if err == nil && current.Properties().GetBool(collectGarbage, true) {
		err = tx.ExpireSnapshots(table.WithPostCommit(false))
	}
	if err == nil {
		_, err = tx.Commit(ctx)
	}
	return err
}

// next drops files that are in the table, and returns those to add, of how many. reached becomes what they reach.
func (t *Table) next(reached map[int32]int64) (files []string, count int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reached = maps.Clone(reached) // less than before if the table is a new one
	for partition, waiting := range t.waiting {
		waiting = slices.DeleteFunc(waiting, func(f file) bool { return f.from < t.reached[partition] })
		t.waiting[partition] = waiting
		count += len(waiting)
		for _, f := range waiting[:min(len(waiting), commitFiles-len(files))] {
			files = append(files, t.archive+"/"+f.name)
			reached[partition] = f.to
		}
	}
	return files, count
}

// offsetsOf returns what the last commit of ours says: a snapshot's, since the table may have been rolled back, and the
// table's if all of ours have expired.
func offsetsOf(t *table.Table) (reached map[int32]int64, found bool) {
	reached = map[int32]int64{}
	read := func(properties iceberg.Properties) {
		for name, value := range properties {
			if number, ours := strings.CutPrefix(name, offsetProperty); ours {
				partition, _ := strconv.ParseInt(number, 10, 32)
				reached[int32(partition)], _ = strconv.ParseInt(value, 10, 64)
				found = true
			}
		}
	}
	for s := t.CurrentSnapshot(); s != nil && !found; {
		if s.Summary != nil {
			read(s.Summary.Properties)
		}
		if s.ParentSnapshotID == nil {
			break
		}
		s = t.SnapshotByID(*s.ParentSnapshotID)
	}
	if !found && t.CurrentSnapshot() != nil {
		read(t.Properties())
	}
	return reached, found
}

// list adds all files of the archive, for a new table. It begins with the last, so that it misses none before one that
// it finds, if another process is still finishing files.
func (t *Table) list(ctx context.Context, store archive.Store) error {
	hours, err := store.List(".", archive.HourPrefix)
	if err != nil {
		return err
	}
	slices.Sort(hours)
	slices.Reverse(hours)
	for _, hour := range hours {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		names, err := store.List(hour, "p")
		if err != nil {
			return err
		}
		for i, name := range names {
			names[i] = hour + "/" + name
		}
		t.Add(names)
	}
	return nil
}

// load opens the catalog, if it is not open, and creates the table, if there is none.
func (t *Table) load(ctx context.Context) (*table.Table, error) {
	if t.catalog == nil {
		c, err := sqlcatalog.NewCatalog(t.opts.Iceberg.Name, t.db, sqlcatalog.MySQL, iceberg.Properties{})
		if err != nil {
			return nil, fmt.Errorf("the catalog in MySQL: %w", err)
		}
		t.catalog = c
	}
	name := catalog.ToIdentifier(t.opts.Iceberg.Table)
	found, err := t.catalog.LoadTable(ctx, name)
	switch {
	case errors.Is(err, catalog.ErrNoSuchTable):
		return t.create(ctx, name)
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("its metadata is lost: drop the table, but not its files, and the archive's files are "+
			"added to a new one: %w", err)
	case err != nil:
		return nil, err
	case found.Location() != t.location():
		return nil, fmt.Errorf("it is at %s, not in archive.dir (%s): name another table, or drop that one",
			found.Location(), t.location())
	}
	return found, nil
}

func (t *Table) location() string { return t.archive + "/" + tableDirectory }

func (t *Table) create(ctx context.Context, name table.Identifier) (*table.Table, error) {
	namespace := catalog.NamespaceFromIdent(name)
	if err := t.catalog.CreateNamespace(ctx, namespace, nil); err != nil &&
		!errors.Is(err, catalog.ErrNamespaceAlreadyExists) {
		return nil, err
	}
	hours := iceberg.NewPartitionSpec(iceberg.PartitionField{SourceIDs: []int{written}, FieldID: 1000,
		Name: "hour", Transform: iceberg.HourTransform{}})
	t.log.Info("creating the Iceberg table", "table", t.opts.Iceberg.Table, "location", t.location())
	// After an error the client removes the metadata, but the catalog may have it: perhaps only the answer was lost.
	t.keep.Store(true)
	defer t.keep.Store(false)
	return t.catalog.CreateTable(ctx, name, fields, catalog.WithLocation(t.location()),
		catalog.WithPartitionSpec(&hours), catalog.WithProperties(iceberg.Properties{
			table.PropertyFormatVersion:               "2",
			table.MetadataDeleteAfterCommitEnabledKey: "true",
			table.ManifestMergeEnabledKey:             "true",
		}))
}
