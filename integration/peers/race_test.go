//go:build race

package peers

// buildFlags: with the race detector in the test, the peers have it, too.
func buildFlags() []string { return []string{"-race"} }
