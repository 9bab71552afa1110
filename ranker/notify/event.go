package notify

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/schema"
)

// event is a CloudEvent 1.0 in JSON. Its ID is the same each time it is sent.
type event struct {
	SpecVersion string          `json:"specversion"`
	ID          string          `json:"id"`
	Source      string          `json:"source"`
	Type        string          `json:"type"`
	Subject     string          `json:"subject"`
	Time        time.Time       `json:"time"`
	ContentType string          `json:"datacontenttype"`
	Data        json.RawMessage `json:"data"` // the record's value
}

// The types of events.
const (
	typeMilestone = "kudos.milestone"
	typeRanking   = "kudos.ranking"
)

// eventOf returns the event of a record, or nil if it is none that is sent.
func (n *Notify) eventOf(rec *kgo.Record) (*event, error) {
	e := &event{SpecVersion: "1.0", Source: n.opts.Source, Subject: string(rec.Key), Time: rec.Timestamp.UTC(),
		ContentType: "application/json", Data: rec.Value}
	if rec.Topic == schema.TopicMilestones {
		m, err := schema.DecodeMilestone(rec.Value)
		if err != nil {
			return nil, err
		}
		e.ID, e.Type, e.Time = "milestone/"+m.ID(), typeMilestone, m.Time
		return e, nil
	}
	if len(rec.Value) == 0 || !slices.Contains(n.opts.Rankings, e.Subject) {
		return nil, nil
	}
	e.ID, e.Type = fmt.Sprintf("ranking/%d/%d", rec.Partition, rec.Offset), typeRanking
	_, err := schema.DecodeRanking(rec.Value)
	return e, err
}

// maxAnswerBytes bounds what is read of a response, so that the connection can be used again.
const maxAnswerBytes = 64 << 10

// post sends an event, signed as Standard Webhooks 1.0 says. Any response but 2xx is an error.
// https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
func (n *Notify) post(ctx context.Context, id string, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, n.opts.RequestTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, n.opts.URL, strings.NewReader(string(body)))
	if err != nil {
		return err
	}
	now := strconv.FormatInt(time.Now().Unix(), 10)
	req.Header.Set("Content-Type", "application/cloudevents+json")
	req.Header.Set("User-Agent", "kudos-notify")
	req.Header.Set("Webhook-Id", id)
	req.Header.Set("Webhook-Timestamp", now)
	if n.key != nil {
		req.Header.Set("Webhook-Signature", sign(n.key, id, now, body))
	}
	resp, err := n.client.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswerBytes))
	_ = resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("the webhook answered %s", resp.Status)
	}
	return err
}

func sign(key []byte, id, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, key)
	_, _ = fmt.Fprintf(mac, "%s.%s.%s", id, timestamp, body) // never fails
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
