package stack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jmoiron/sqlx"
)

// Follow makes this MariaDB server a replica of another one: it replaces the database here with a copy of the
// primary's, and replicates every later commit asynchronously (MariaDB's default). Whatever this server had in that
// database is lost, so an old primary can become a replica after a failover. Each server needs its own server id.
func (d *Database) Follow(ctx context.Context, primary *Database, database string) error {
	err := d.session(ctx, func(to *sqlx.Conn) error {
		err := executeAll(ctx, to, "STOP SLAVE", "RESET SLAVE ALL", "SET SESSION sql_log_bin = 0",
			"SET GLOBAL read_only = OFF")
		if err != nil {
			return err
		}
		var position string
		err = primary.session(ctx, func(from *sqlx.Conn) (err error) {
			position, err = copyDatabase(ctx, from, to, database)
			return err
		})
		if err != nil {
			return err
		}
		change := fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=%d, MASTER_USER='root', "+
			"MASTER_PASSWORD='',"+
			" MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=1, MASTER_HEARTBEAT_PERIOD=1", primary.port.number)
		return executeAll(ctx, to, "RESET MASTER", "SET GLOBAL gtid_slave_pos = '"+position+"'", change,
			"SET GLOBAL slave_net_timeout = 4", "START SLAVE")
	})
	if err == nil {
		err = d.waitReplicating(ctx)
	}
	if err != nil {
		return fmt.Errorf("make %s at %s a replica of %s: %w", d.command.Name, d.Address(), primary.Address(), err)
	}
	return nil
}

// StopReplicating stops a replica at its current position.
func (d *Database) StopReplicating(ctx context.Context) error {
	return d.replication(ctx, "STOP SLAVE")
}

// Promote makes a replica an independent server.
func (d *Database) Promote(ctx context.Context) error {
	return d.replication(ctx, "STOP SLAVE", "RESET SLAVE ALL")
}

func (d *Database) replication(ctx context.Context, statements ...string) error {
	if err := d.session(ctx, func(c *sqlx.Conn) error { return executeAll(ctx, c, statements...) }); err != nil {
		return fmt.Errorf("%s: %w", d.command.Name, err)
	}
	return nil
}

func executeAll(ctx context.Context, c *sqlx.Conn, statements ...string) error {
	for _, statement := range statements {
		if _, err := c.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// copyDatabase copies all tables under a read lock, and returns their position (GTID).
func copyDatabase(ctx context.Context, from, to *sqlx.Conn, database string) (position string, err error) {
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
	use := "USE `" + database + "`"
	err = executeAll(ctx, to, "DROP DATABASE IF EXISTS `"+database+"`", "CREATE DATABASE `"+database+"`", use)
	if err := errors.Join(err, executeAll(ctx, from, use)); err != nil {
		return "", err
	}
	var tables []string
	err = from.SelectContext(ctx, &tables,
		"SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()")
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

func copyTable(ctx context.Context, from, to *sqlx.Conn, table string) error {
	var name, create string
	if err := from.QueryRowContext(ctx, "SHOW CREATE TABLE `"+table+"`").Scan(&name, &create); err != nil {
		return err
	}
	if _, err := to.ExecContext(ctx, create); err != nil {
		return err
	}
	rows, err := from.QueryxContext(ctx, "SELECT * FROM `"+table+"`")
	if err != nil {
		return err
	}
	defer rows.Close()
	var all [][]any
	for rows.Next() {
		row, err := rows.SliceScan()
		if err != nil {
			return err
		}
		all = append(all, row)
	}
	const rowsAtOnce = 200
	list := func(of string, n int) string { return strings.TrimSuffix(strings.Repeat(of+",", n), ",") }
	for part := range slices.Chunk(all, rowsAtOnce) {
		places := list("("+list("?", len(part[0]))+")", len(part))
		_, err := to.ExecContext(ctx, "INSERT INTO `"+table+"` VALUES "+places, slices.Concat(part...)...)
		if err != nil {
			return err
		}
	}
	return rows.Err()
}

func (d *Database) waitReplicating(ctx context.Context) error {
	err := eventually(ctx, startTimeout, func(ctx context.Context) error {
		return d.session(ctx, func(c *sqlx.Conn) error {
			status := map[string]any{} // values are []byte
			if err := c.QueryRowxContext(ctx, "SHOW SLAVE STATUS").MapScan(status); err != nil {
				return err
			}
			io, sql := fmt.Sprintf("%s", status["Slave_IO_Running"]), fmt.Sprintf("%s", status["Slave_SQL_Running"])
			if io != "Yes" || sql != "Yes" {
				return fmt.Errorf("IO %q %s, SQL %q %s", io, status["Last_IO_Error"], sql, status["Last_SQL_Error"])
			}
			return nil
		})
	})
	if err != nil {
		return fmt.Errorf("replication is not running: %w", err)
	}
	return nil
}
