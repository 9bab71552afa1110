// Package integration tests the whole system from outside: the program runs as processes, between a real broker and
// database (package stack) or those embedded in `kudos dev`. The expected results are computed by code that shares
// nothing with the program but the wire contracts.
//
// Helpers here don't call t.Helper: testify prints the whole call stack of a failure.
package integration
