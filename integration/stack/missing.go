package stack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"kudos/integration/tier"
)

const (
	installHint      = "run `make deps` (integration/deps.sh)"
	installMySQLHint = "run integration/deps.sh mysql"
)

// Software is something that tests need on this machine.
type Software int

// Software that this package starts, or that tests run themselves.
const (
	NeedKafka Software = iota
	NeedMariaDB
	NeedMySQL
	NeedBrowser
	NeedValgrind
	NeedRedis
	NeedGalera
	NeedDisk
)

// Missing reports which of the software is missing and how to install it; nil if everything is installed.
func Missing(ctx context.Context, needs ...Software) error {
	var errs []error
	for _, need := range needs {
		var err error
		switch need {
		case NeedKafka:
			err = missingKafka(ctx)
		case NeedMariaDB:
			_, _, err = findMariaDB()
		case NeedMySQL:
			_, err = findMySQL()
		case NeedBrowser:
			err = missingBrowser(ctx)
		case NeedValgrind:
			_, err = find("valgrind", "valgrind")
		case NeedRedis:
			_, err = find("redis-server", "Redis")
		case NeedDisk:
			err = missingDisk()
		case NeedGalera:
			err = missingGalera()
		}
		errs = append(errs, err)
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
	_, err = find("mvn", "Maven (to fetch Kafka's jars)")
	return err
}

const lowestNode = 20

// Chromium returns the path of the browser, which has several names.
func Chromium() (path string, err error) {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err = findProgram(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("find Chromium: %w; %s", err, installHint)
}

func missingBrowser(ctx context.Context) error {
	if _, err := Chromium(); err != nil {
		return err
	}
	if _, err := find("npm", "npm (to fetch the browser driver)"); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "node", "--version").Output()
	if err != nil {
		return fmt.Errorf("find Node: %w; %s", err, installHint)
	}
	release, _, _ := strings.Cut(strings.TrimPrefix(string(out), "v"), ".")
	if n, err := strconv.Atoi(release); err != nil || n < lowestNode {
		return fmt.Errorf("node is %s, but the browser driver needs %d or later: install it",
			strings.TrimSpace(string(out)), lowestNode)
	}
	return nil
}

func find(program, what string) (string, error) {
	path, err := findProgram(program)
	if err != nil {
		return "", fmt.Errorf("find %s: %w; %s", what, err, installHint)
	}
	return path, nil
}

// findProgram looks up a program in PATH, and in directories for servers that a user's PATH may lack.
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

// Require skips the test if software is missing, and fails it in CI (CI=true), where a skip would go unnoticed.
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
		t.Fatalf("CI must not skip this test: %v", err)
	}
	t.Skipf("needs real servers: %v", err)
}

// Fetch downloads Kafka and, if wanted, MySQL from Maven, unless they are in this machine's cache.
func Fetch(ctx context.Context, log *slog.Logger, mysql bool) error {
	artifacts := []func() (artifact, error){kafkaArtifact}
	if mysql {
		artifacts = append(artifacts, mysqlArtifact)
	}
	for _, of := range artifacts {
		a, err := of()
		if err == nil {
			_, err = a.fetch(ctx, log)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
