package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"
)

// notCounted is the count of rows of a server that does not tell.
const notCounted = -1

// rowsWritten is how many rows were inserted and changed so far: on MySQL since the server started, on MariaDB, which has
// given these counters up, in the tables of the database while `userstat` was on. Only
// differences mean something. notCounted where neither is there, or the user may not ask.
func rowsWritten(ctx context.Context, db *sql.DB) (n int64, err error) {
	var counters int
	err = db.QueryRowContext(ctx, `SELECT COUNT(*), COALESCE(SUM(variable_value), 0) FROM performance_schema.global_status
		WHERE variable_name IN ('Innodb_rows_inserted', 'Innodb_rows_updated')`).Scan(&counters, &n)
	if err == nil && counters == 2 {
		return n, nil
	}
	if err != nil && !refused(err) {
		return 0, fmt.Errorf("asking the database for its counters: %w", err)
	}
	var counted bool
	err = db.QueryRowContext(ctx, "SELECT @@userstat").Scan(&counted)
	if refused(err) || err == nil && !counted {
		return notCounted, nil
	}
	if err == nil {
		err = db.QueryRowContext(ctx, `SELECT COALESCE(SUM(rows_changed), 0) FROM information_schema.table_statistics
			WHERE table_schema = DATABASE()`).Scan(&n)
	}
	if refused(err) {
		return notCounted, nil
	}
	if err != nil {
		return 0, fmt.Errorf("asking the database for its counters: %w", err)
	}
	return n, nil
}

// refused tells a server's answer, be it that it has no such table or does not let us, from trouble on the way.
func refused(err error) bool {
	var answer *mysql.MySQLError
	return errors.As(err, &answer)
}
