package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/text/language"

	"kudos/ranker"
	"kudos/schema"
)

// complete sets the values that the shell completes for a flag, and more than cobra's NoFileComp.
func complete(cmd *cobra.Command, flag string, more cobra.ShellCompDirective, values func() []string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, // fails if there is no such flag, or twice
		func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return values(), more | cobra.ShellCompDirectiveNoFileComp
		})
}

// ranker returns the ranker's settings in the command line so far, or its defaults if those are not valid yet.
func (s *settings) ranker() ranker.Options {
	s.set = slices.Compact(slices.Sorted(slices.Values(s.set))) // cobra has parsed the flags twice
	if cfg, err := s.load(); err == nil {
		return cfg.Ranker
	}
	return ranker.DefaultOptions()
}

func (s *settings) windows() []string {
	return append(strings.Split(windowNames(s.ranker().Windows), ", "), schema.LeaderboardDay, schema.LeaderboardAll)
}

// regions returns those that have rankings; if any may have one, the countries.
func (s *settings) regions() []string {
	only := s.ranker().Regions
	regions := append([]string{schema.GlobalName}, only...)
	for i := 0; len(only) == 0 && i < 26*26; i++ {
		code := string([]byte{'A' + byte(i/26), 'A' + byte(i%26)})
		if r, err := language.ParseRegion(code); err == nil && r.IsCountry() && r.Canonicalize().String() == code {
			regions = append(regions, code)
		}
	}
	return regions
}
