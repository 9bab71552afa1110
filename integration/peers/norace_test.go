//go:build !race

package peers

func buildFlags() []string { return nil }
