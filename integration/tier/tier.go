// Package tier assigns tests to the project's commands: `make check`, `make test`, `make verify` and `make nightly`.
// Each tier also runs everything of the tiers before it.
//
// A test that needs neither real servers nor minutes belongs to check, without a call. Every other test starts with a
// call of Test, Verify or Nightly. The environment variable KUDOS_TEST_TIER selects the tier to run; without it, as in
// a plain `go test -run TestX ./pkg`, all tests except the nightly ones run.
package tier

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
)

// Variable is the environment variable that selects the tier to run.
const Variable = "KUDOS_TEST_TIER"

// The values of Variable. adds is verify without the tests of test, which CI runs before.
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

// Verify marks a test for `make verify`: one that takes longer than a contributor should have to wait.
func Verify(t testing.TB) { t.Helper(); skipUnless(t, verify) }

// Limited selects a size for CI, whose time is limited.
func Limited(full, inCI int) int {
	if os.Getenv("CI") != "" {
		return inCI
	}
	return full
}

// TurnVariable is a number in CI on a slow machine: of the slowest tests of `make verify`, it then runs a third.
const TurnVariable = "KUDOS_TEST_TURN"

// Turn is Verify for one of the slowest tests. In CI on a slow machine it runs only in one turn of three, 0, 1 or 2.
func Turn(turn int) func(testing.TB) {
	return func(t testing.TB) {
		t.Helper()
		Verify(t)
		if text := os.Getenv(TurnVariable); text != "" {
			now, err := strconv.Atoi(text)
			if err != nil {
				t.Fatalf("%s: %v", TurnVariable, err)
			}
			if now%3 != turn {
				t.Skipf("CI runs it in turn %d of 3; %s is %d", turn, TurnVariable, now)
			}
		}
	}
}

// Nightly marks a test for `make nightly`.
func Nightly(t testing.TB) { t.Helper(); skipUnless(t, nightly) }

// Size selects the size of a test that runs in `make check` or `make test` and, larger, in `make verify`.
func Size(inTest, inVerify int) int {
	if running := current(); running == check || running == test {
		return inTest
	}
	return inVerify
}

// RealServers returns an error if the running tier has no real servers, so that unmarked tests cannot use them.
func RealServers() error {
	if current() == check {
		return fmt.Errorf("`make check` has no real servers: begin the test with tier.Test(t) or tier.Verify(t)")
	}
	return nil
}

// Lacks skips a test that lacks what it needs. In CI, which has everything, it fails the test.
func Lacks(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// NeedPrograms is for tests that run programs of integration/deps.sh themselves.
func NeedPrograms(t testing.TB, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			Lacks(t, fmt.Sprintf("%v: make deps", err))
		}
	}
}

func skipUnless(t testing.TB, tier string) {
	t.Helper()
	if !slices.Contains(runs[tier], current()) {
		t.Skipf("runs in `make %s`", tier)
	}
}

// current returns the tier that runs. A misspelled one panics, instead of running everything.
func current() string {
	switch name := os.Getenv(Variable); name {
	case "", check, test, adds, verify, nightly:
		return name
	default:
		panic(fmt.Sprintf("%s=%s: give %s, %s, %s, %s or %s", Variable, name, check, test, adds, verify, nightly))
	}
}
