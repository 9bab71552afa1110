package stack

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Follow makes this MariaDB server a replica of another one: it drops the database here, copies it as it is there, and
// has everything that is committed there from then on sent over, without the primary waiting for it (asynchronous
// replication, MariaDB's default). What this server held of that database is gone, so that a primary which was failed
// over from can come back so. Both need a server id of their own.
func (d *Database) Follow(ctx context.Context, primary *Database, database string) error {
	err := d.session(ctx, func(to *sql.Conn) error {
		for _, statement := range []string{"STOP SLAVE", "RESET SLAVE ALL", "SET SESSION sql_log_bin = 0", "SET GLOBAL read_only = OFF"} {
			if _, err := to.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("%s: %w", statement, err)
			}
		}
		var position string
		err := primary.session(ctx, func(from *sql.Conn) (err error) {
			position, err = copyDatabase(ctx, from, to, database)
			return err
		})
		if err != nil {
			return err
		}
		change := fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=%d, MASTER_USER='root', MASTER_PASSWORD='',"+
			" MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=1, MASTER_HEARTBEAT_PERIOD=1", primary.port.number)
		for _, statement := range []string{"RESET MASTER", "SET GLOBAL gtid_slave_pos = '" + position + "'", change, "SET GLOBAL slave_net_timeout = 4", "START SLAVE"} {
			if _, err := to.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("%s: %w", statement, err)
			}
		}
		return nil
	})
	if err == nil {
		err = d.waitReplicating(ctx)
	}
	if err != nil {
		return fmt.Errorf("make %s at %s a replica of %s: %w", d.command.Name, d.Address(), primary.Address(), err)
	}
	return nil
}

// StopReplicating has a replica stand still where it is: it takes no more from its primary.
func (d *Database) StopReplicating(ctx context.Context) error {
	return d.replication(ctx, "STOP SLAVE")
}

// Promote makes a replica a server of its own.
func (d *Database) Promote(ctx context.Context) error {
	return d.replication(ctx, "STOP SLAVE", "RESET SLAVE ALL")
}

func (d *Database) replication(ctx context.Context, statements ...string) error {
	return d.session(ctx, func(c *sql.Conn) error {
		for _, statement := range statements {
			if _, err := c.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("%s on %s: %w", strings.ToLower(statement), d.command.Name, err)
			}
		}
		return nil
	})
}

// copyDatabase copies all tables while nobody can write, and returns the position (GTID) that they stand at.
func copyDatabase(ctx context.Context, from, to *sql.Conn, database string) (position string, err error) {
	if _, err := from.ExecContext(ctx, "FLUSH TABLES WITH READ LOCK"); err != nil {
		return "", fmt.Errorf("lock the primary: %w", err)
	}
	defer func() {
		_, unlockErr := from.ExecContext(ctx, "UNLOCK TABLES")
		err = errors.Join(err, unlockErr)
	}()
	if err := from.QueryRowContext(ctx, "SELECT @@gtid_current_pos").Scan(&position); err != nil {
		return "", err
	}
	for _, statement := range []string{"DROP DATABASE IF EXISTS `" + database + "`", "CREATE DATABASE `" + database + "`", "USE `" + database + "`"} {
		if _, err := to.ExecContext(ctx, statement); err != nil {
			return "", fmt.Errorf("%s: %w", statement, err)
		}
	}
	if _, err := from.ExecContext(ctx, "USE `"+database+"`"); err != nil {
		return "", err
	}
	tables, err := texts(ctx, from, "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()")
	if err != nil {
		return "", err
	}
	for _, table := range tables {
		if err := copyTable(ctx, from, to, table); err != nil {
			return "", fmt.Errorf("copy table %s: %w", table, err)
		}
	}
	return position, nil
}

func copyTable(ctx context.Context, from, to *sql.Conn, table string) error {
	var name, create string
	if err := from.QueryRowContext(ctx, "SHOW CREATE TABLE `"+table+"`").Scan(&name, &create); err != nil {
		return err
	}
	if _, err := to.ExecContext(ctx, create); err != nil {
		return err
	}
	rows, err := from.QueryContext(ctx, "SELECT * FROM `"+table+"`")
	if err != nil {
		return err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	const rowsAtOnce = 200
	place := "(" + strings.TrimSuffix(strings.Repeat("?,", len(columns)), ",") + ")"
	var values []any
	flush := func() error {
		if len(values) == 0 {
			return nil
		}
		places := strings.TrimSuffix(strings.Repeat(place+",", len(values)/len(columns)), ",")
		_, err := to.ExecContext(ctx, "INSERT INTO `"+table+"` VALUES "+places, values...)
		values = values[:0]
		return err
	}
	for rows.Next() {
		row := make([]sql.NullString, len(columns))
		into := make([]any, len(columns))
		for i := range row {
			into[i] = &row[i]
		}
		if err := rows.Scan(into...); err != nil {
			return err
		}
		for i := range row {
			values = append(values, row[i])
		}
		if len(values) >= rowsAtOnce*len(columns) {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return errors.Join(rows.Err(), flush())
}

func texts(ctx context.Context, c *sql.Conn, query string) (all []string, err error) {
	rows, err := c.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, rows.Err()
}

// waitReplicating returns once both threads of the replica run.
func (d *Database) waitReplicating(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, d.startTimeout)
	defer cancel()
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		status, err := d.replicaStatus(ctx)
		if err == nil && status["Slave_IO_Running"] == "Yes" && status["Slave_SQL_Running"] == "Yes" {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("replication does not run: %w; last: %w, IO %q %s, SQL %q %s", ctx.Err(), err,
				status["Slave_IO_Running"], status["Last_IO_Error"], status["Slave_SQL_Running"], status["Last_SQL_Error"])
		}
	}
}

// replicaStatus is the row of SHOW SLAVE STATUS, by column.
func (d *Database) replicaStatus(ctx context.Context) (status map[string]string, _ error) {
	status = map[string]string{}
	return status, d.session(ctx, func(c *sql.Conn) error {
		rows, err := c.QueryContext(ctx, "SHOW SLAVE STATUS")
		if err != nil {
			return err
		}
		defer rows.Close()
		columns, err := rows.Columns()
		if err != nil {
			return err
		}
		for rows.Next() {
			row := make([]sql.NullString, len(columns))
			into := make([]any, len(columns))
			for i := range row {
				into[i] = &row[i]
			}
			if err := rows.Scan(into...); err != nil {
				return err
			}
			for i, name := range columns {
				status[name] = row[i].String
			}
		}
		return rows.Err()
	})
}
