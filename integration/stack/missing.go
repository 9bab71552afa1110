package stack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"testing"

	"kudos/integration/tier"
)

// What a person does about missing software.
const (
	installHint      = "run `make deps` (integration/deps.sh)"
	installMySQLHint = "run integration/deps.sh mysql"
)

// Software is something that tests need on this machine.
type Software int

// What this package can start, or tests run themselves.
const (
	NeedKafka Software = iota
	NeedMariaDB
	NeedMySQL
	NeedBrowser
	NeedValgrind
	NeedRedis
)

// Missing says what of the named software this machine lacks, and what to do about it; nil if it has all.
func Missing(ctx context.Context, needs ...Software) error {
	var errs []error
	for _, need := range needs {
		switch need {
		case NeedKafka:
			errs = append(errs, missingKafka(ctx))
		case NeedMariaDB:
			errs = append(errs, missingMariaDB())
		case NeedMySQL:
			errs = append(errs, missingMySQL())
		case NeedBrowser:
			errs = append(errs, missingBrowser(ctx))
		case NeedValgrind:
			errs = append(errs, missingValgrind())
		case NeedRedis:
			errs = append(errs, missingRedis())
		}
	}
	return errors.Join(errs...)
}

func missingKafka(ctx context.Context) error {
	if _, err := findJava(ctx); err != nil {
		return err
	}
	a, err := kafkaArtifact()
	if err != nil {
		return err
	}
	if _, cached, err := a.dir(); err != nil || cached {
		return err
	}
	if _, err := exec.LookPath("mvn"); err != nil {
		return fmt.Errorf("find Maven, to fetch Kafka's jars: %w; %s", err, installHint)
	}
	return nil
}

func missingMariaDB() error {
	for _, name := range []string{"mariadbd", "mariadb-install-db"} {
		if _, err := findProgram(name); err != nil {
			return fmt.Errorf("MariaDB is not installed: %w; %s", err, installHint)
		}
	}
	return nil
}

func missingRedis() error {
	if _, err := findProgram("redis-server"); err != nil {
		return fmt.Errorf("Redis is not installed: %w; %s", err, installHint)
	}
	return nil
}

func missingMySQL() error {
	a, err := mysqlArtifact()
	if err != nil {
		return err
	}
	dir, cached, err := a.dir()
	if err != nil {
		return err
	}
	if !cached {
		return fmt.Errorf("MySQL is not installed: no %s; %s", dir, installMySQLHint)
	}
	return nil
}

func missingValgrind() error {
	if _, err := exec.LookPath("valgrind"); err != nil {
		return fmt.Errorf("find valgrind: %w; %s", err, installHint)
	}
	return nil
}

// Require lets a test go on only where its software is installed. Elsewhere the test is skipped, but in CI (the
// environment has CI=true) it fails: there a skipped test would pass for one that ran.
func Require(t testing.TB, needs ...Software) {
	t.Helper()
	if err := tier.RealServers(); err != nil {
		t.Fatal(err)
	}
	err := Missing(t.Context(), needs...)
	if err == nil {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("CI must run this test, but: %v", err)
	}
	t.Skipf("needs real servers: %v", err)
}

// Fetch brings the parts of the named software that come through Maven into this machine's cache, if they are not there.
func Fetch(ctx context.Context, log *slog.Logger, needs ...Software) error {
	for _, need := range needs {
		var a artifact
		var err error
		switch need {
		case NeedKafka:
			a, err = kafkaArtifact()
		case NeedMySQL:
			a, err = mysqlArtifact()
		default:
			continue // a package of the distribution
		}
		if err != nil {
			return err
		}
		if _, err := a.fetch(ctx, log); err != nil {
			return err
		}
	}
	return nil
}
