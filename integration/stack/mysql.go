package stack

import (
	"context"
	"fmt"
	"path/filepath"
)

// StartMySQL starts Oracle's MySQL server, on an empty data directory, and returns once it answers. ctx bounds the start
// only. The server comes from this machine's cache, where deps.sh puts it: it is too large to be fetched by surprise.
func StartMySQL(ctx context.Context, options DatabaseOptions) (*Database, error) {
	a, err := mysqlArtifact()
	if err != nil {
		return nil, err
	}
	base, cached, err := a.dir()
	if err != nil {
		return nil, err
	}
	if !cached {
		return nil, fmt.Errorf("MySQL is not installed: no %s; %s", base, installMySQLHint)
	}
	server := filepath.Join(base, "bin", "mysqld")
	return startDatabase(ctx, engine{
		name: "mysql",
		initialise: func(data string) (string, []string) {
			return server, []string{"--no-defaults", "--basedir=" + base, "--datadir=" + data, "--initialize-insecure"}
		},
		serve: func(data string) (string, []string) {
			// Name resolution stays on: root may come from "localhost", which is what it makes of 127.0.0.1.
			return server, []string{"--no-defaults", "--basedir=" + base, "--datadir=" + data, "--mysqlx=OFF"}
		},
	}, options)
}
