// Package tier says which tests belong to which of the project's commands: `make check`, `make test`, `make verify`
// and `make nightly`. Each tier runs everything that the tiers before it run.
//
// A test that needs neither real servers nor minutes says nothing and belongs to check. Every other test begins with
// Test, Verify or Nightly. The environment variable KUDOS_TEST_TIER names the tier that runs; without it, as in a plain
// `go test -run TestX ./pkg`, all tests but the nightly ones run.
package tier

import (
	"fmt"
	"os"
	"slices"
	"testing"
)

// Variable is the environment variable that names the tier that runs.
const Variable = "KUDOS_TEST_TIER"

// The values of Variable. Adds is verify without what test runs: CI runs test first.
const (
	check   = "check"
	test    = "test"
	adds    = "verify-adds"
	verify  = "verify"
	nightly = "nightly"
)

// runs are the tiers in which a test of a tier runs. The empty one is a plain `go test`.
var runs = map[string][]string{
	test:    {test, verify, nightly, ""},
	verify:  {adds, verify, nightly, ""},
	nightly: {nightly},
}

// Test marks a test for `make test`: the whole system on real servers, within seconds.
func Test(t testing.TB) {
	t.Helper()
	skipUnless(t, test)
}

// Verify marks a test for `make verify`: what takes longer than a contributor should wait for.
func Verify(t testing.TB) {
	t.Helper()
	skipUnless(t, verify)
}

// Nightly marks a test for `make nightly`.
func Nightly(t testing.TB) {
	t.Helper()
	skipUnless(t, nightly)
}

// Size is how large a test is made that runs in `make check` or `make test` and, larger, in `make verify`.
func Size(inTest, inVerify int) int {
	if running := current(); running == check || running == test {
		return inTest
	}
	return inVerify
}

// RealServers is an error where the running tier has no real servers, so that a test cannot use them unmarked.
func RealServers() error {
	if current() == check {
		return fmt.Errorf("`make check` has no real servers: begin the test with tier.Test(t) or tier.Verify(t)")
	}
	return nil
}

func skipUnless(t testing.TB, tier string) {
	t.Helper()
	if !slices.Contains(runs[tier], current()) {
		t.Skipf("runs in `make %s`", tier)
	}
}

// current is the tier that runs. A misspelled one must not pass for a run of everything.
func current() string {
	switch name := os.Getenv(Variable); name {
	case "", check, test, adds, verify, nightly:
		return name
	default:
		panic(fmt.Sprintf("%s=%s: give %s, %s, %s, %s or %s", Variable, name, check, test, adds, verify, nightly))
	}
}
