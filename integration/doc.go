// Package integration tests the whole system from outside: the program itself, as processes, between a broker and a
// database that are real (package stack) or the ones that `kudos dev` embeds. What must come out is worked out by code
// that shares nothing with the program but the wire contracts.
//
// Helpers here don't call t.Helper: testify prints the whole way from the test to what failed.
package integration
