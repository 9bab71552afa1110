package main

import "github.com/spf13/cobra"

func (a *app) rankerCommand() *cobra.Command {
	return group("ranker", "Take posts out of rankings, or put them back", a.excludeCommand(), a.includeCommand(), a.exclusionsCommand())
}
