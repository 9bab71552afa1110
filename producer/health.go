package producer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/schema"
)

// health is when Kafka last answered a look well, and what went wrong since.
type health struct {
	mu struct {
		sync.Mutex
		at  time.Time
		err error
	}
}

// answered notes a look's outcome. That the topic does not exist
// counts at once; silence, and what may pass by itself, only with time.
func (h *health) answered(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.err = err
	switch {
	case err == nil:
		h.mu.at = time.Now()
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		h.mu.at = time.Time{}
	}
}

func (h *health) last() (time.Time, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.at, h.mu.err
}

// ready is nil when Kafka answered within ReadyTimeout.
func (p *publisher) ready() error {
	if p.client.Load() == nil {
		return fmt.Errorf("producer: %w", errNotRunning)
	}
	at, err := p.health.last()
	if !at.IsZero() && time.Since(at) < p.options.ReadyTimeout {
		return nil
	}
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return fmt.Errorf("producer: the topic %s does not exist; create it with `kudos topics apply`", schema.TopicLikes)
	case err != nil:
		return fmt.Errorf("producer: Kafka at %v does not answer for the topic %s: %w", p.kafka.Brokers, schema.TopicLikes, err)
	}
	return fmt.Errorf("producer: Kafka at %v has not answered yet", p.kafka.Brokers)
}

// watch looks at Kafka a few times per ReadyTimeout, and logs when it goes away and
// when it is back.
func (p *publisher) watch(ctx context.Context) {
	every := p.options.ReadyTimeout / 3
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	away := false
	for {
		p.look(ctx, every)
		if err := p.ready(); ctx.Err() == nil && (err != nil) != away {
			away = err != nil
			if away {
				p.log.Warn("likes cannot be taken", "err", err)
			} else {
				p.log.Info("Kafka answers; likes are taken again")
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// look asks Kafka for the likes topic. Its failure needs no log of its own: watch
// tells when it matters.
func (p *publisher) look(ctx context.Context, timeout time.Duration) {
	client := p.client.Load()
	if client == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	p.health.answered(askForTopic(ctx, client, schema.TopicLikes))
}

func askForTopic(ctx context.Context, client *kgo.Client, topic string) error {
	req := kmsg.NewPtrMetadataRequest()
	asked := kmsg.NewMetadataRequestTopic()
	asked.Topic = kmsg.StringPtr(topic)
	req.Topics = append(req.Topics, asked)
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	if len(resp.Topics) != 1 {
		return fmt.Errorf("asked for one topic, got %d", len(resp.Topics))
	}
	return kerr.ErrorForCode(resp.Topics[0].ErrorCode)
}
