//go:build nodev

package cli

import "github.com/spf13/cobra"

// devCommands returns nothing: images are built without the embedded servers, so without `kudos dev`.
func (a *app) devCommands() []*cobra.Command { return nil }
