package sql

import (
	"context"
	"fmt"
	"strings"

	"github.com/jmoiron/sqlx"
)

// WritersError means that several servers accept changes of the same rows. They check only when a change is replicated
// whether another has been committed before, and Galera can lose one then, also in a healthy cluster.
type WritersError struct{ kind string }

func (e *WritersError) Error() string {
	return fmt.Sprintf("it is part of %s, whose nodes can lose updates of each other", e.kind)
}

// writersAction is the action for an operator who gets a WritersError.
const writersAction = "use one server with replicas; or let all processes of kudos write to the same node at any " +
	"time, by a proxy that closes the connections to the previous one, and set mysql.single_writer"

// checkWriters fails with *WritersError unless one server accepts writes, or the operator has said so.
func (s *Store) checkWriters(ctx context.Context, q sqlx.QueryerContext) error {
	if s.options.SingleWriter || s.oneWriter.Load() {
		return nil
	}
	var rows []struct {
		Name  string `db:"Variable_name"`
		Value string `db:"Value"`
	}
	err := sqlx.SelectContext(ctx, q, &rows, "SHOW GLOBAL VARIABLES WHERE Variable_name IN "+
		"('wsrep_on', 'wsrep_provider', 'group_replication_single_primary_mode')")
	if err != nil {
		return err
	}
	is := map[string]string{}
	for _, row := range rows {
		is[row.Name] = strings.ToUpper(row.Value)
	}
	if kind := clusterOf(is); kind != "" {
		return &WritersError{kind}
	}
	s.oneWriter.Store(true)
	return nil
}

// clusterOf returns what the server is a node of if others accept writes too, by its variables in upper case; or "".
func clusterOf(is map[string]string) string {
	switch {
	case is["wsrep_on"] == "ON" && is["wsrep_provider"] != "" && is["wsrep_provider"] != "NONE":
		return "a Galera cluster (wsrep_on)"
	case is["group_replication_single_primary_mode"] == "OFF":
		return "a multi-primary replication group"
	}
	return ""
}
