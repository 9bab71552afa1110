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
	answer, err := Read(ctx, "http://"+target+"/readyz")
	if err != nil {
		return fmt.Errorf("no report from the admin server (admin.addr): %w", err)
	}
	if answer.Ready {
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

// Read returns the readiness report at a URL: /readyz, or /readyz?verbose with each partition.
func Read(ctx context.Context, url string) (*Readiness, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	// Connect directly: proxy settings in the environment must not apply.
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<20)) // some thousand partitions fit
	if err != nil {
		return nil, fmt.Errorf("reading the response of %s: %w", url, err)
	}
	answer := new(Readiness)
	if err := json.Unmarshal(body, answer); err != nil || len(answer.Checks) == 0 {
		return nil, fmt.Errorf("%s answered %d %s, which is not a kudos readiness report: %.200q",
			url, resp.StatusCode, http.StatusText(resp.StatusCode), body)
	}
	answer.Ready = answer.Ready && resp.StatusCode == http.StatusOK
	return answer, nil
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
