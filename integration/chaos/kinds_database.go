package chaos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"kudos/integration/mysqlproxy"
)

func killMySQL(ctx context.Context, f *fault) error {
	primary := f.sys.database.Load().primary
	f.on("%v at %s", primary, primary.Address())
	if err := primary.Kill(); err != nil {
		return err
	}
	return errors.Join(wait(ctx, f.between(0, 2*time.Second)), primary.Start(ctx))
}

func pauseMySQL(ctx context.Context, f *fault) error {
	primary := f.sys.database.Load().primary
	d := f.between(300*time.Millisecond, 7*time.Second) // the read timeout is 4 s
	f.on("%v for %v", primary, d.Round(time.Millisecond))
	return pause(ctx, d, primary.Server)
}

func failover(ctx context.Context, f *fault) error {
	primary := f.sys.database.Load().primary
	f.on("%v at %s", primary, primary.Address())
	lost, err := f.sys.failOver(ctx, f.between(0, 2*time.Second))
	switch {
	case err != nil:
		return fmt.Errorf("failing MySQL over: %w", err)
	case lost == 0:
		return missed("the replica lacked nothing: no update was applied meanwhile")
	}
	f.show("applied updates lost by a MySQL failover", int64(lost))
	return nil
}

// lockRows holds locks like a forgotten session: on the counts of popular posts, or on positions.
func lockRows(ctx context.Context, f *fault) error {
	db := f.sys.database.Load().direct
	query := "SELECT post_id FROM like_count WHERE post_id <= 200 FOR UPDATE"
	if f.random.IntN(4) == 0 {
		query = "SELECT partition_id FROM applied_offset FOR UPDATE"
	}
	d := f.between(time.Second, 5*time.Second)
	f.on("%s for %v", query, d.Round(time.Millisecond))
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return missed("MySQL did not start a transaction: %v", err)
	}
	defer tx.Rollback() //nolint:errcheck // the end of the fault; what was locked is free when the session is gone, too
	if _, err := tx.ExecContext(ctx, query); err != nil {
		return missed("the rows could not be locked: %v", err)
	}
	waited, end := int64(0), time.Now().Add(d)
	for time.Now().Before(end) {
		var n int64
		asking, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := db.QueryRowContext(asking,
			"SELECT COUNT(DISTINCT requesting_trx_id) FROM information_schema.innodb_lock_waits").Scan(&n)
		cancel()
		if err == nil { // otherwise MySQL is down
			waited = max(waited, n)
		}
		if err := wait(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	if waited == 0 {
		return missed("no transaction waited for the locks")
	}
	f.show("transactions that waited for locks (maximum per fault, summed)", waited)
	return nil
}

// loseReplies breaks connections at the worst moment: the server has committed and replied, unknown to the processor.
func loseReplies(ctx context.Context, f *fault) error {
	n := 1 + f.random.Int64N(4)
	f.on("%d COMMITs", n)
	var seen, lost atomic.Int64
	f.sys.network.commits.On(func(query string) mysqlproxy.Decision {
		if !strings.EqualFold(query, "COMMIT") || seen.Add(1) > n {
			return mysqlproxy.Decision{}
		}
		return mysqlproxy.CutAfter(func(ok bool) {
			if ok { // otherwise the connection just breaks
				lost.Add(1)
			}
		})
	})
	err := waitUntil(ctx, 8*time.Second, "COMMITs", func() bool { return lost.Load() == n })
	f.sys.network.commits.On(nil)
	if lost.Load() == 0 {
		return missed("%v", err)
	}
	f.show("lost responses to COMMIT", lost.Load())
	return nil
}
