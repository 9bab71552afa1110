package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"
)

func killMySQL(ctx context.Context, f *fault) error {
	primary, _, _ := f.sys.database.primary()
	f.on("%v at %s", primary, primary.Address())
	if err := primary.Kill(); err != nil {
		return err
	}
	return errors.Join(wait(ctx, f.between(0, 2*time.Second)), primary.Start(ctx))
}

func pauseMySQL(ctx context.Context, f *fault) error {
	primary, _, _ := f.sys.database.primary()
	d := f.between(300*time.Millisecond, 7*time.Second) // the read timeout is 4 s
	f.on("%v for %v", primary, d.Round(time.Millisecond))
	if err := primary.Pause(); err != nil {
		return err
	}
	return errors.Join(wait(ctx, d), primary.Resume())
}

func failover(ctx context.Context, f *fault) error {
	primary, _, _ := f.sys.database.primary()
	f.on("%v at %s", primary, primary.Address())
	lost, err := f.sys.failOver(ctx, f.between(0, 2*time.Second))
	switch {
	case err != nil:
		return fmt.Errorf("failing MySQL over: %w", err)
	case lost == 0:
		return missed("the replica missed nothing: nothing was applied meanwhile")
	}
	f.show("updates that MySQL had applied and a failover lost", int64(lost))
	return nil
}

// lockRows holds locks as a forgotten session would: on the counts of popular posts, or on positions.
func lockRows(ctx context.Context, f *fault) error {
	_, db, _ := f.sys.database.primary()
	query := "SELECT post_id FROM like_count WHERE post_id <= 200 FOR UPDATE"
	if f.random.IntN(4) == 0 {
		query = "SELECT partition_id FROM applied_offset FOR UPDATE"
	}
	d := f.between(time.Second, 5*time.Second)
	f.on("%s for %v", query, d.Round(time.Millisecond))
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return missed("MySQL does not take it: %v", err)
	}
	defer tx.Rollback() //nolint:errcheck // the end of the fault; what was locked is free when the session is gone, too
	if _, err := tx.ExecContext(ctx, query); err != nil {
		return missed("the rows could not be locked: %v", err)
	}
	waited, end := int64(0), time.Now().Add(d)
	for time.Now().Before(end) {
		var n int64
		asking, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := db.QueryRowContext(asking, "SELECT COUNT(DISTINCT requesting_trx_id) FROM information_schema.innodb_lock_waits").Scan(&n)
		cancel()
		if err == nil { // otherwise it is down meanwhile
			waited = max(waited, n)
		}
		if err := wait(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	if waited == 0 {
		return missed("nobody waited for the locks")
	}
	f.show("transactions seen waiting for the locks at one time, summed up", waited)
	return nil
}

// loseReplies breaks connections after the server has committed and before the processor knows.
func loseReplies(ctx context.Context, f *fault) error {
	n := 1 + f.random.IntN(4)
	f.on("%d COMMITs", n)
	proxy := f.sys.network.commit
	before := proxy.lost()
	proxy.lose(n)
	err := waitUntil(ctx, 8*time.Second, "COMMITs", func() bool { return proxy.lost() >= before+n })
	proxy.lose(0)
	lost := proxy.lost() - before
	if lost == 0 {
		return missed("%v", err)
	}
	f.show("replies to COMMIT that were lost", int64(lost))
	return nil
}
