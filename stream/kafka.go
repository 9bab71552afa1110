package stream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/plugin/kslog"
)

// KafkaOptions say how this program reaches Kafka. Every client of the program is
// built from them, so that there is one place for addresses and security.
type KafkaOptions struct {
	// Brokers are the addresses to start from, host:port.
	Brokers []string `mapstructure:"brokers"`
	// ClientID is the name that brokers see in their logs and quotas.
	ClientID string `mapstructure:"client_id"`
	// DialTimeout bounds one connection attempt.
	DialTimeout time.Duration `mapstructure:"dial_timeout"`
	// RequestTimeout bounds one request, over all of its retries.
	RequestTimeout time.Duration `mapstructure:"request_timeout"`
	// Hooks are told of what clients do. Not a setting.
	Hooks []kgo.Hook `mapstructure:"-"`
}

// DefaultKafkaOptions are for a broker on this machine.
func DefaultKafkaOptions() KafkaOptions {
	return KafkaOptions{
		Brokers:        []string{"127.0.0.1:9092"},
		ClientID:       "kudos",
		DialTimeout:    5 * time.Second,
		RequestTimeout: 30 * time.Second,
	}
}

// Validate says what is wrong with the options, all of it.
func (o KafkaOptions) Validate() error {
	var errs []error
	if len(o.Brokers) == 0 {
		errs = append(errs, errors.New("kafka.brokers: at least one host:port is needed"))
	}
	for _, b := range o.Brokers {
		if _, _, err := net.SplitHostPort(b); err != nil {
			errs = append(errs, fmt.Errorf("kafka.brokers: %q is not host:port: %w", b, err))
		}
	}
	if o.DialTimeout <= 0 || o.RequestTimeout <= 0 {
		errs = append(errs, errors.New("kafka.dial_timeout and kafka.request_timeout must be above zero"))
	}
	return errors.Join(errs...)
}

// NewClient makes a client with these options and extra ones. It connects on first
// use; Close it.
func (o KafkaOptions) NewClient(log *slog.Logger, extra ...kgo.Opt) (*kgo.Client, error) {
	dialer := &net.Dialer{Timeout: o.DialTimeout}
	opts := []kgo.Opt{
		kgo.SeedBrokers(o.Brokers...),
		kgo.ClientID(o.ClientID),
		kgo.WithLogger(quietClient{kslog.New(log.With("component", "kafka"))}),
		kgo.DisableClientMetrics(),
		kgo.WithHooks(o.Hooks...),
		kgo.Dialer(func(ctx context.Context, network, host string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, host)
		}),
		kgo.RetryTimeout(o.RequestTimeout),
		// A leader that moved is looked for at this pace; the client's own 5 s would
		// be as long a pause.
		kgo.MetadataMinAge(250 * time.Millisecond),
	}
	cl, err := kgo.NewClient(append(opts, extra...)...)
	if err != nil {
		return nil, fmt.Errorf("kafka client for %v: %w", o.Brokers, err)
	}
	return cl, nil
}

// quietClient leaves out what the client says of its daily work: several lines a
// transaction.
type quietClient struct{ kgo.Logger }

func (q quietClient) Level() kgo.LogLevel { return min(q.Logger.Level(), kgo.LogLevelWarn) }
