//go:build !nodev

package devtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// WaitReadiness waits until readiness says all of the words.
func WaitReadiness(t testing.TB, ready func() error, words ...string) {
	t.Helper()
	WaitFor(t, "readiness to say "+strings.Join(words, ", "), func() (bool, any) {
		err := ready()
		missing := func(word string) bool { return !strings.Contains(fmt.Sprint(err), word) }
		return !slices.ContainsFunc(words, missing), err
	}, func() string { return "" })
}

// WaitReady waits until readiness has nothing to say.
func WaitReady(t testing.TB, ready func() error) {
	t.Helper()
	WaitFor(t, "readiness", func() (bool, any) { err := ready(); return err == nil, err }, func() string { return "" })
}
