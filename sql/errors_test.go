package sql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
)

func TestIsTransient(t *testing.T) {
	answer := func(number uint16) error { return fmt.Errorf("x: %w", &mysql.MySQLError{Number: number}) }
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{answer(errLockWaitTimeout), true},
		{answer(errDeadlock), true},
		{answer(1290), true},
		{answer(1040), true},
		{answer(1053), true},
		{answer(1317), true},
		{answer(errNoSuchTable), false},
		{answer(1045), false},
		{answer(1064), false},
		{answer(1690), false},
		{fmt.Errorf("x: %w", driver.ErrBadConn), true},
		{fmt.Errorf("x: %w", mysql.ErrInvalidConn), true},
		{&net.OpError{Op: "dial", Err: errors.New("connection refused")}, true},
		{&net.DNSError{Err: "no such host", IsNotFound: true}, true},
		{context.DeadlineExceeded, true},
		{context.Canceled, false},
		{&UnknownOutcomeError{Err: errors.New("anything")}, true},
		{ErrPositionMoved, false},
		{ErrPositionMissing, false},
		{&SourceChangedError{}, false},
		{&SchemaError{Need: 1}, false},
		{errors.New("anything"), false},
	} {
		require.Equal(t, c.want, IsTransient(c.err), "%v", c.err)
	}
}

func TestServerUnavailable(t *testing.T) {
	s := noServer(t).store(t)
	var schema *SchemaError
	require.NotErrorAs(t, s.CheckSchema(t.Context()), &schema, "an unavailable server says nothing about the schema")
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
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	for what, err := range map[string]error{
		"CheckSchema": database{options: o}.store(t).CheckSchema(ctx),
		"Migrate":     Migrate(ctx, o, discardLog()),
	} {
		require.ErrorIs(t, err, context.DeadlineExceeded, what)
		require.True(t, IsTransient(err), "%s: %v", what, err)
	}
	require.NoError(t, ctx.Err(), "the timeouts in Options should have ended the calls")
}
