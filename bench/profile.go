package bench

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// This file is where the profile comes from that the program is built by (make pgo).

const (
	// profileSeconds is how long a drain is profiled: shorter than any drain of 5,000,000 events.
	profileSeconds = 5
	// profileBytes bounds a profile.
	profileBytes = 64 << 20
)

// profile puts a CPU profile of the next seconds into the folder for profiles, if there is one. What it returns waits
// for that.
func (r *kudosProcess) profile(ctx context.Context) (wait func() error) {
	if r.profiles == "" {
		return func() error { return nil }
	}
	done := make(chan error, 1)
	go func() { done <- r.fetchProfile(ctx) }()
	return func() error { return <-done }
}

func (r *kudosProcess) fetchProfile(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout+profileSeconds*time.Second)
	defer cancel()
	var addr string
	if err := r.wait(ctx, "the admin server's address", func() bool { addr = r.admin; return addr != "" }); err != nil {
		return err
	}
	url := fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", addr, profileSeconds)
	status, body, err := get(ctx, http.DefaultClient, url, profileBytes)
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("%s: status %d: %s", url, status, body)
	}
	return os.WriteFile(filepath.Join(r.profiles, time.Now().UTC().Format("20060102-150405.000")+".pprof"), body, 0o644)
}
