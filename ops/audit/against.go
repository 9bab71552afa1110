package audit

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"kudos/schema"
	"kudos/sql"
)

// AgainstReport is the result of Against.
type AgainstReport struct {
	Equal   bool                `json:"equal"`
	Posts   Section[AgainstRow] `json:"posts"`
	Seconds float64             `json:"seconds"`
}

// AgainstRow is a post whose counts differ.
type AgainstRow struct {
	PostID uint64        `json:"post_id,string"`
	Kudos  schema.Counts `json:"kudos"` // the sum over all databases of like_count
	Query  schema.Counts `json:"query"`
}

// Against compares like_count with a query at another database: post id, likes and, optionally, dislikes. A post that
// one of them lacks has 0 there. The two are read one after the other, so what changes meanwhile differs.
func Against(ctx context.Context, o Options, db *sql.Shards, other *stdsql.DB, query string, log *slog.Logger,
) (r *AgainstReport, err error) {
	began := time.Now()
	dir, err := os.MkdirTemp(o.TempDir, "kudos-audit-")
	if err != nil {
		return nil, fmt.Errorf("creating a directory for temporary files: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	l, err := openLedger(filepath.Join(dir, "ledger"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	phase := o.Progress.Begin("reading the query", "rows", 0)
	err = l.copyQuery(ctx, other, query, func() { phase.Add(1) })
	phase.End()
	if err != nil {
		return nil, fmt.Errorf("the query: %w", err)
	}
	log.Debug("read the query", "took", time.Since(began))
	for _, store := range db.All() {
		phase := o.Progress.Begin("reading MySQL at "+store.String(), "rows", 0)
		err := l.copyCounts(ctx, store, func() { phase.Add(1) })
		phase.End()
		if err != nil {
			return nil, err
		}
	}
	r = &AgainstReport{Posts: Section[AgainstRow]{Rows: []AgainstRow{}}}
	err = l.walk(func(suffix []byte, sums []schema.Counts) error {
		post, _ := decodeCount(suffix)
		r.Posts.Compared++
		if sums[0] != sums[1] {
			r.Posts.found(AgainstRow{post, sums[0], sums[1]}, o.Limit)
		}
		return nil
	}, mysqlCount, streamCount)
	r.Equal, r.Seconds = r.Posts.Different == 0, time.Since(began).Seconds()
	return r, err
}

// copyQuery adds the query's rows as the other side of the comparison.
func (l *ledger) copyQuery(ctx context.Context, db *stdsql.DB, query string, read func()) (err error) {
	tx, err := db.BeginTx(ctx, &stdsql.TxOptions{Isolation: stdsql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // it only reads
	rows, err := tx.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	var post uint64
	var c schema.Counts
	into := []any{&post, &c.Likes, &c.Dislikes}
	if len(columns) != 2 && len(columns) != 3 {
		return fmt.Errorf("it has %d columns; post id, likes and, optionally, dislikes are needed", len(columns))
	}
	page := l.newPage()
	defer page.close()
	for rows.Next() {
		if err := rows.Scan(into[:len(columns)]...); err != nil {
			return err
		}
		if err := page.add(streamCount, appendCount(nil, post, 0), 0, c); err != nil {
			return err
		}
		read()
	}
	return errors.Join(rows.Err(), page.flush())
}

func (l *ledger) copyCounts(ctx context.Context, store *sql.Store, read func()) error {
	return store.Snapshot(ctx, func(v *sql.Snapshot) error {
		page := l.newPage()
		defer page.close()
		err := v.EachCount(ctx, func(row sql.PostCount) error {
			read()
			c := schema.Counts{Likes: row.Likes, Dislikes: row.Dislikes}
			return page.add(mysqlCount, appendCount(nil, row.PostID, 0), 0, c)
		})
		return errors.Join(err, page.flush())
	})
}

// WriteText prints the report as text.
func (r *AgainstReport) WriteText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	r.Posts.writeText(t, fmt.Sprintf("%d of %d posts differ", r.Posts.Different, r.Posts.Compared),
		"post\tkudos\tquery\tdifference", func(row AgainstRow) []any {
			return []any{row.PostID, row.Kudos, row.Query, Pair{row.Kudos, row.Query}.difference()}
		})
	took := time.Duration(r.Seconds * float64(time.Second)).Round(10 * time.Millisecond)
	fmt.Fprintf(t, "%d differences: %d posts compared in %s\n", r.Posts.Different, r.Posts.Compared, took)
	return t.Flush()
}
