package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
)

// Ask asks the admin server on addr (as in Options.Addr) whether its process is ready. The error names failed checks.
func Ask(ctx context.Context, addr string) error {
	target, err := dialable(addr)
	if err != nil {
		return err
	}
	url := "http://" + target + "/readyz"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("admin.addr: %w", err)
	}
	// Connect directly: proxy settings in the environment must not apply.
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return fmt.Errorf("no response from the admin server (admin.addr): %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20)) // the reasons of some hundred partitions fit
	if err != nil {
		return fmt.Errorf("reading the response of %s: %w", url, err)
	}
	var answer readiness
	if err := json.Unmarshal(body, &answer); err != nil || len(answer.Checks) == 0 {
		return fmt.Errorf("%s answered %d %s, which is not a kudos readiness report: %.200q",
			url, resp.StatusCode, http.StatusText(resp.StatusCode), body)
	}
	if resp.StatusCode == http.StatusOK && answer.Ready {
		return nil
	}
	errs := []error{errors.New("not ready")}
	for _, c := range answer.Checks {
		if !c.Ready {
			errs = append(errs, fmt.Errorf("%s: %s", c.Name, c.Error))
		}
	}
	return errors.Join(errs...)
}

// dialable returns the address of a server on this machine that listens on addr.
func dialable(addr string) (string, error) {
	host, port, err := net.SplitHostPort(addr)
	switch {
	case err != nil:
		return "", fmt.Errorf("admin.addr: %q is not host:port: %w", addr, err)
	case port == "0":
		return "", fmt.Errorf("admin.addr: %s is any free port; use the one in the server's log", addr)
	}
	// A server on all addresses also listens on loopback.
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
		if ip != nil && ip.To4() != nil {
			host = "127.0.0.1"
		}
	}
	return net.JoinHostPort(host, port), nil
}
