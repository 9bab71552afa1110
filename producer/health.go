package producer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"kudos/schema"
	"kudos/stream/kafka"
)

// health is when Kafka last answered, and the error since then.
type health struct {
	mu struct {
		sync.Mutex
		at  time.Time
		err error
	}
}

// answered records a result. A missing topic makes the producer unready at once, other errors only after ReadyTimeout.
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

func (p *Producer) kafkaReady() error {
	if p.client.Load() == nil {
		return fmt.Errorf("producer: %w", errNotRunning)
	}
	p.health.mu.Lock()
	defer p.health.mu.Unlock()
	at, err := p.health.mu.at, p.health.mu.err
	const topic = schema.TopicLikes
	switch {
	case !at.IsZero() && time.Since(at) < p.options.ReadyTimeout:
		return nil
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return fmt.Errorf("producer: the topic %s does not exist; create it with `kudos topics apply`", topic)
	case err != nil:
		return fmt.Errorf("producer: Kafka at %v returned no metadata for topic %s: %w", p.kafka.Brokers, topic, err)
	}
	return fmt.Errorf("producer: Kafka at %v has not answered yet", p.kafka.Brokers)
}

// watchKafka asks for the likes topic three times per ReadyTimeout. It logs when Kafka stops and resumes answering.
func (p *Producer) watchKafka(ctx context.Context) error {
	every := p.options.ReadyTimeout / 3
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	away := false
	for {
		if client := p.client.Load(); client != nil {
			bounded, cancel := context.WithTimeout(ctx, every)
			_, err := kafka.LookUpTopics(bounded, client, schema.TopicLikes)
			cancel()
			p.health.answered(err)
		}
		if err := p.kafkaReady(); ctx.Err() == nil && (err != nil) != away {
			away = err != nil
			if away {
				p.log.Warn("likes cannot be accepted", "error", err)
			} else {
				p.log.Info("Kafka answers again; accepting likes")
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
