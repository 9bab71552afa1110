package sql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"kudos/dev/testkit"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
)

func TestIsTransient(t *testing.T) {
	answer := func(number uint16) error { return fmt.Errorf("x: %w", &mysql.MySQLError{Number: number}) }
	transient := []error{
		answer(errLockWaitTimeout), answer(errDeadlock), answer(1290), answer(1040), answer(1053), answer(1317),
		fmt.Errorf("x: %w", driver.ErrBadConn), fmt.Errorf("x: %w", mysql.ErrInvalidConn), context.DeadlineExceeded,
		&net.OpError{Op: "dial", Err: errors.New("connection refused")},
		&net.DNSError{Err: "no such host", IsNotFound: true}, &UnknownOutcomeError{Err: errors.New("anything")},
	}
	lasting := []error{
		nil, answer(errNoSuchTable), answer(1045), answer(1064), answer(1690), context.Canceled, ErrPositionMoved,
		ErrPositionMissing, &SourceChangedError{}, &SchemaError{Need: 1}, errors.New("anything"),
	}
	for i, err := range slices.Concat(transient, lasting) {
		require.Equal(t, i < len(transient), IsTransient(err), "%v", err)
	}
}

// What no retry fixes has its own cause and action.
func TestErrorsAreClassified(t *testing.T) {
	answer := func(number uint16) error { return &mysql.MySQLError{Number: number} }
	for _, c := range []struct {
		err           error
		cause, action string
	}{
		{&SchemaError{Have: 3, Need: 7}, "mysql", "kudos migrate"},
		{&SchemaError{Have: 7, Need: 7, Err: answer(errNoSuchTable)}, "mysql", recreate},
		{&SchemaError{Have: 9, Need: 7, Err: answer(errNoColumn)}, "mysql", "run the version of kudos that migrated " +
			"it, or a later one"},
		{ErrShardMissing, "mysql", "kudos migrate"},
		{answer(errNoSuchTable), "mysql", "run `kudos migrate`"},
		{answer(errNoDatabase), "mysql", "create the database, then run `kudos migrate`"},
		{answer(1142), "permission", "check user, password and grants: docs/security.md lists what each role and " +
			"command needs"},
		{answer(1040), "unavailable", "lower max_open_conns, or raise the server's max_connections"},
		{driver.ErrBadConn, "unavailable", ""},
	} {
		cause, action := describe(c.err, "read").(*failure).Classify()
		require.Equal(t, c.cause, cause, "%v", c.err)
		require.Equal(t, c.action, action, "%v", c.err)
	}
}

func TestServerUnavailable(t *testing.T) {
	s := noServer(t).store(t)
	require.NotErrorAs(t, s.CheckSchema(t.Context()), new(*SchemaError),
		"an unavailable server says nothing about the schema")
	_, positionErr := s.Position(t.Context(), likesTopic(), 0)
	_, peekErr := s.PeekPosition(t.Context(), likesTopic(), 0)
	for what, err := range map[string]error{
		"CheckSchema":  s.CheckSchema(t.Context()),
		"Position":     positionErr,
		"PeekPosition": peekErr,
		"Apply":        s.Apply(t.Context(), likesTopic(), 0, at(0, 0), at(1, 1), oneLike, nil),
	} {
		require.Error(t, err, what)
		require.True(t, IsTransient(err), "%s: %v", what, err)
		require.NotContains(t, err.Error(), "hunter2", what)
	}
}

// A server that accepts the connection and then sends nothing must not block the caller.
func TestServerSilent(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close() // the kernel accepts, but nobody answers
	o := testOptions("root@tcp(" + silent.Addr().String() + ")/kudos")
	o.ConnectTimeout, o.ReadTimeout = 50*time.Millisecond, time.Hour
	ctx := testkit.Within(t, waitLimit)
	for what, err := range map[string]error{
		"CheckSchema": database{options: o}.store(t).CheckSchema(ctx),
		"Migrate":     Migrate(ctx, o, discardLog()),
	} {
		require.ErrorIs(t, err, context.DeadlineExceeded, what)
		require.True(t, IsTransient(err), "%s: %v", what, err)
	}
	require.NoError(t, ctx.Err(), "the timeouts in Options should have ended the calls")
}
