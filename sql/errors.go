package sql

import (
	"context"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"

	"github.com/go-sql-driver/mysql"
)

var (
	// ErrPositionMoved: the stored position is not the expected one; nothing changed. Read Position and resume there.
	ErrPositionMoved = errors.New("the applied position in MySQL has moved: read it again and resume there")

	// ErrPositionMissing means that counts exist without the position they reflect. It needs an operator.
	ErrPositionMissing = errors.New("MySQL holds counts but no applied_offset row for this partition: " +
		"restore all kudos tables from one backup, or run `kudos rebuild`")
)

// SourceChangedError means that the counts in MySQL come from another log than the given one. It needs an operator.
type SourceChangedError struct{ Stored, Given Source }

func (e *SourceChangedError) Error() string {
	return fmt.Sprintf("the counts in MySQL come from topic id %s with %d partitions, but topic %s has id %s with %d: "+
		"point kudos to the right cluster and database, or run `kudos rebuild`",
		hex.EncodeToString(e.Stored.TopicID[:]), e.Stored.Partitions,
		e.Given.Topic, hex.EncodeToString(e.Given.TopicID[:]), e.Given.Partitions)
}

// ErrShardMissing means that the database has no record of which shard it is.
var ErrShardMissing = errors.New("the database has no record of which shard it is: run `kudos migrate`")

// ShardError means that the database is not the shard that the settings say. With a different list of databases,
// partitions would be counted in two places. It needs an operator.
type ShardError struct{ Stored, Given Shard }

func (e *ShardError) Error() string {
	return fmt.Sprintf("this database is %s, but the settings say that it is %s: mysql.shards must list the same "+
		"databases in the same order in every process, as long as there are counts (for one alone: mysql.dsn); %s",
		e.Stored, e.Given, ShardAction)
}

// ShardAction is the action for an operator who gets a ShardError.
const ShardAction = "restore the previous list; to change the number of databases, see docs/scaling.md"

// UnknownOutcomeError means that COMMIT's answer was lost. Read Position again: it waits until the server has decided.
type UnknownOutcomeError struct{ Err error }

func (e *UnknownOutcomeError) Error() string {
	return fmt.Sprintf("the outcome of COMMIT is unknown, read the position again: %v", e.Err)
}

func (e *UnknownOutcomeError) Unwrap() error { return e.Err }

// PositionUncertain reports whether the caller must read the position again and resume there: it may have moved.
func PositionUncertain(err error) bool {
	return errors.Is(err, ErrPositionMoved) || errors.As(err, new(*UnknownOutcomeError))
}

// SchemaError means that the tables are not the ones this program needs.
type SchemaError struct {
	Have, Need int64 // migration versions; Have is 0 for an empty database
	Err        error // what is wrong with a table; nil if only the version is too old
}

func (e *SchemaError) Error() string {
	switch {
	case e.Err != nil && e.Have > e.Need:
		return fmt.Sprintf("schema version is %d, but this program knows only versions up to %d, and a table differs: "+
			"%v; %s", e.Have, e.Need, e.Err, upgrade)
	case e.Err != nil:
		return fmt.Sprintf("a table is not as kudos created it: %v; if another application owns it, use a separate "+
			"database; otherwise %s", e.Err, recreate)
	}
	return fmt.Sprintf("schema version is %d, %d is needed: run `kudos migrate`", e.Have, e.Need)
}

const upgrade = "run the version of kudos that migrated it, or a later one"

// recreate is the action for a damaged or missing table. Its rows are derived from Kafka.
const recreate = "restore all kudos tables from one backup, or stop the processors and rankers, drop that table and " +
	versionTable + ", and delete the rows of trending_position, then: kudos migrate, and kudos rebuild"

func (e *SchemaError) Unwrap() error { return e.Err }

// IsTransient reports whether err clears up without a change to data or settings: the server is unreachable,
// restarting, read-only or overloaded, or a lock was held too long. The caller parks the partition and retries. It is
// false for everything else, including ErrPositionMoved and a canceled context.
func IsTransient(err error) bool {
	var answer *mysql.MySQLError
	switch {
	case errors.As(err, new(*UnknownOutcomeError)):
		return true
	case errors.Is(err, context.Canceled):
		return false
	case errors.As(err, &answer):
		return slices.Contains(transientNumbers, answer.Number)
	}
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, context.DeadlineExceeded) || errors.As(err, new(net.Error))
}

// MySQL and MariaDB error numbers: https://dev.mysql.com/doc/mysql-errors/8.4/en/server-error-reference.html and
// https://mariadb.com/kb/en/mariadb-error-codes/.
const (
	errLockWaitTimeout = 1205
	errDeadlock        = 1213
	errDuplicateKey    = 1062
	errNoDatabase      = 1049
	errNoColumn        = 1054
	errNoSuchTable     = 1146

	errInsecureTransport = 3159
)

func hasNumber(err error, number uint16) bool {
	var answer *mysql.MySQLError
	return errors.As(err, &answer) && answer.Number == number
}

// isConflict reports a lock conflict with another transaction, which a retry resolves.
func isConflict(err error) bool {
	return hasNumber(err, errDeadlock) || hasNumber(err, errLockWaitTimeout)
}

var transientNumbers = []uint16{
	errLockWaitTimeout, errDeadlock,
	1290, 1792, 1836, // read-only
	1040, 1203, 1226, // too many connections, or a per-user quota
	1047,                   // Galera: this node is not ready
	1053, 1927, 3169, 4031, // shutting down; session killed; session timed out while idle
	1158, 1159, 1160, 1161, // network errors seen by the server
	1317, 1969, 3024, // statement killed or timed out
	1021, 1037, 1038, 1041, 1114, 1180, 1135, // out of disk or memory; commit failed; no thread
}

var deniedNumbers = []uint16{1044, 1045, 1142, 1143, 1227, 1698}

// advice is what an operator should do about err; empty if they need to do nothing or only wait.
func advice(err error) string {
	var answer *mysql.MySQLError
	switch {
	case errors.As(err, new(*SchemaError)): // its message includes the action
	case errors.As(err, new(*WritersError)):
		return writersAction
	case errors.As(err, &answer):
		if slices.Contains(deniedNumbers, answer.Number) {
			return "check user, password and grants: docs/security.md lists what each role and command needs"
		}
		switch answer.Number {
		case errInsecureTransport:
			return "the server accepts only encrypted connections: set mysql.tls"
		case errNoDatabase:
			return "create the database, then run `kudos migrate`"
		case errNoSuchTable, errNoColumn:
			return "run `kudos migrate`"
		case 1129:
			return "the server blocks this host after failed connections: run FLUSH HOSTS there"
		case 1040, 1203, 1226:
			return "lower max_open_conns, or raise the server's max_connections"
		case 1153:
			return "lower max_statement_bytes, or raise the server's max_allowed_packet"
		case 1665:
			return "set the server's binlog_format to ROW or MIXED: READ COMMITTED cannot be replicated by STATEMENT"
		case 1264, 1690:
			return "a count would exceed the range of BIGINT, which likes cannot cause: run `kudos audit`"
		}
	case errors.Is(err, mysql.ErrNoTLS):
		return "set up TLS on the server, or unset mysql.tls"
	case errors.Is(err, driver.ErrBadConn):
		return "the server closed the connection, or is read-only"
	}
	return ""
}

// failure is an error of an operation.
type failure struct {
	error
	what string // the operation
}

// describe wraps err with the failed operation and the advice; nil stays nil.
func describe(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return &failure{err, fmt.Sprintf(format, args...)}
}

func (f *failure) Error() string {
	if advice := advice(f.error); advice != "" {
		return fmt.Sprintf("%s: %v (%s)", f.what, f.error, advice)
	}
	return f.what + ": " + f.error.Error()
}

func (f *failure) Unwrap() error { return f.error }

// Classify returns why partitions that need the database are parked, and what an operator does.
func (f *failure) Classify() (cause, action string) {
	var schema *SchemaError
	var answer *mysql.MySQLError
	cause, action = "unavailable", advice(f.error)
	switch {
	case errors.As(f.error, &schema) && schema.Err != nil && schema.Have > schema.Need:
		return "mysql", upgrade
	case schema != nil && schema.Err != nil:
		return "mysql", recreate
	case schema != nil, errors.Is(f.error, ErrShardMissing):
		return "mysql", "kudos migrate"
	case errors.As(f.error, new(*WritersError)):
		return "mysql", writersAction
	case errors.Is(f.error, driver.ErrBadConn):
		action = "" // the advice is a cause
	case !errors.As(f.error, &answer):
	case slices.Contains(deniedNumbers, answer.Number):
		cause = "permission"
	case slices.Contains([]uint16{errNoDatabase, errNoColumn, errNoSuchTable}, answer.Number):
		cause = "mysql"
	}
	return cause, action
}
