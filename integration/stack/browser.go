package stack

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// lowestNode is the first release of Node that the browser's driver runs on.
const lowestNode = 20

// Chromium finds the browser, under the names that systems have for it.
func Chromium() (path string, err error) {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err = findProgram(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("find Chromium: %w; %s", err, installHint)
}

func missingBrowser(ctx context.Context) error {
	if _, err := Chromium(); err != nil {
		return err
	}
	if _, err := exec.LookPath("npm"); err != nil {
		return fmt.Errorf("find npm, to fetch the browser's driver: %w; %s", err, installHint)
	}
	out, err := exec.CommandContext(ctx, "node", "--version").Output()
	if err != nil {
		return fmt.Errorf("find Node: %w; %s", err, installHint)
	}
	release, _, _ := strings.Cut(strings.TrimPrefix(string(out), "v"), ".")
	if n, err := strconv.Atoi(release); err != nil || n < lowestNode {
		return fmt.Errorf("node is %s, and the browser's driver needs %d or later: install one", strings.TrimSpace(string(out)), lowestNode)
	}
	return nil
}
