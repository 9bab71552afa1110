package stack

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
)

// StartMariaDB starts the MariaDB server that is installed on this machine, on an empty data directory, and returns once
// it answers. ctx bounds the start only.
func StartMariaDB(ctx context.Context, options DatabaseOptions) (*Database, error) {
	server, err := findProgram("mariadbd")
	if err != nil {
		return nil, fmt.Errorf("MariaDB is not installed: %w; %s", err, installHint)
	}
	install, err := findProgram("mariadb-install-db")
	if err != nil {
		return nil, fmt.Errorf("MariaDB is installed without mariadb-install-db: %w; %s", err, installHint)
	}
	return startDatabase(ctx, engine{
		name: "mariadb",
		initialise: func(data string) (string, []string) {
			return install, []string{
				"--no-defaults", // first, or it is not understood; the machine's own configuration is for another server
				"--datadir=" + data,
				"--auth-root-authentication-method=normal", // a password, empty, not the name of the system's account
				"--skip-name-resolve", "--force",           // needs no name service
				"--skip-test-db",
			}
		},
		serve: func(data string) (string, []string) {
			return server, []string{"--no-defaults", "--datadir=" + data, "--skip-name-resolve"}
		},
	}, options)
}

// findProgram looks a program up in PATH and where a distribution puts servers, which a user's PATH may lack.
func findProgram(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/usr/local/sbin", "/usr/libexec"} {
		if path, e := exec.LookPath(filepath.Join(dir, name)); e == nil {
			return path, nil
		}
	}
	return "", err
}
