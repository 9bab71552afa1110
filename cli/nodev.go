//go:build nodev

package cli

import "github.com/spf13/cobra"

// devCommands: an image has no embedded servers, and so no `kudos dev`.
func (a *app) devCommands() []*cobra.Command { return nil }
