package dev

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"kudos/schema"
)

const (
	apiWorkers = 8 // requests at the same time
	apiTimeout = 5 * time.Second
)

// apiClient sends single events to the producer's API.
type apiClient struct {
	base string
	http *http.Client
}

// newAPIClient returns nil for an empty address.
func newAPIClient(address string) *apiClient {
	if address == "" {
		return nil
	}
	return &apiClient{
		base: "http://" + address,
		http: &http.Client{Timeout: apiTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: apiWorkers}},
	}
}

// sendOverHTTP is one worker: it sends what comes, until events is closed. A request
// that has begun is finished also after ctx has ended, so that its outcome is known.
func (s *Simulator) sendOverHTTP(ctx context.Context, api *apiClient, events <-chan schema.Event) {
	defer api.http.CloseIdleConnections()
	for e := range events {
		err := api.send(context.WithoutCancel(ctx), e)
		if err == nil {
			s.overHTTP.Add(1)
		}
		s.count(ctx, err)
	}
}

func (c *apiClient) send(ctx context.Context, e schema.Event) error {
	method, reaction := http.MethodPut, "likes"
	switch e.Action {
	case schema.Unlike:
		method = http.MethodDelete
	case schema.Dislike:
		reaction = "dislikes"
	}
	url := fmt.Sprintf("%s/v1/posts/%d/%s/%d?region=%s", c.base, e.PostID, reaction, e.UserID, e.Region)
	req, err := http.NewRequestWithContext(ctx, method, url, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection is used again
	if resp.StatusCode != http.StatusAccepted {
		return fmt.Errorf("%s %s: %s", method, url, resp.Status)
	}
	return nil
}
