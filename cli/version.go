package cli

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the linker where the build has no Git history to read it from.
var version string

// build is what `kudos version` shows.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func buildVersion() build {
	b := build{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if b.Version == "" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.Revision = s.Value
		}
	}
	return b
}

func (a *app) versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the version of this program",
		Args:  cobra.NoArgs,
	}
	out := addOutput(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		b := buildVersion()
		if *out == "json" {
			return json.NewEncoder(a.stdout).Encode(b)
		}
		_, err := fmt.Fprintln(a.stdout, "kudos", b.Version, b.Go, b.Platform)
		return err
	}
	return cmd
}
