//go:build !nodev

package devtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// WaitReadiness waits until the readiness error contains all words.
func WaitReadiness(t testing.TB, ready func() error, words ...string) {
	t.Helper()
	WaitFor(t, "the readiness error to contain "+strings.Join(words, ", "), func() (bool, any) {
		err := ready()
		missing := func(word string) bool { return !strings.Contains(fmt.Sprint(err), word) }
		return !slices.ContainsFunc(words, missing), err
	}, func() string { return "" })
}

// WaitReady waits until ready returns nil.
func WaitReady(t testing.TB, ready func() error) {
	t.Helper()
	WaitFor(t, "readiness", func() (bool, any) { err := ready(); return err == nil, err }, func() string { return "" })
}
