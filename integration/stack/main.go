package stack

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
)

// WithMariaDB is for the TestMain of a package whose tests take a server's DSN from an
// environment variable: it starts a MariaDB of the package's own, sets the variable, runs
// the tests and stops the server. A variable that is set already names the server to use.
// Where MariaDB is missing the tests run without; in CI that is a failure.
func WithMariaDB(m interface{ Run() int }, variable string) (code int) {
	if os.Getenv(variable) != "" {
		return m.Run()
	}
	ctx := context.Background()
	if err := Missing(ctx, NeedMariaDB); err != nil {
		if os.Getenv("CI") == "" {
			return m.Run()
		}
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fail := func(err error) int {
		fmt.Fprintf(os.Stderr, "MariaDB for the tests: %v\n", err)
		return max(code, 1)
	}
	d, err := StartMariaDB(ctx, DatabaseOptions{Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		return fail(err)
	}
	defer func() {
		if err := d.Close(); err != nil {
			code = fail(err)
		}
	}()
	const name = "kudos"
	if err := d.CreateDatabase(ctx, name); err != nil {
		return fail(err)
	}
	if err := os.Setenv(variable, d.DSN(name)); err != nil {
		return fail(err)
	}
	return m.Run()
}
