package kafka

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/plugin/kslog"
)

// Options say how this program reaches Kafka. Every client of the program is
// built from them, so that there is one place for addresses and security.
type Options struct {
	// Brokers are the addresses to start from, host:port.
	Brokers []string `mapstructure:"brokers"`
	// ClientID is the name that brokers see in their logs and quotas.
	ClientID string `mapstructure:"client_id"`
	// DialTimeout bounds one connection attempt.
	DialTimeout time.Duration `mapstructure:"dial_timeout"`
	// RequestTimeout bounds one request, over all of its retries.
	RequestTimeout time.Duration `mapstructure:"request_timeout"`

	// TLS has connections encrypted and brokers verified, by the certificates in TLSCA, or else by those that the
	// system trusts. TLSCert and TLSKey are the client's own, for brokers that want one. All are PEM files, and read
	// anew for each connection.
	TLS     bool   `mapstructure:"tls"`
	TLSCA   string `mapstructure:"tls_ca"`
	TLSCert string `mapstructure:"tls_cert"`
	TLSKey  string `mapstructure:"tls_key"`
	// SASLMechanism is how the client says who it is: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512; empty: not at all.
	SASLMechanism string `mapstructure:"sasl_mechanism"`
	SASLUser      string `mapstructure:"sasl_user"`
	// SASLPassword is never to be printed. Config reads it from SASLPasswordFile, if that is given.
	SASLPassword     string `mapstructure:"sasl_password"`
	SASLPasswordFile string `mapstructure:"sasl_password_file"`

	// Hooks are told of what clients do. Not a setting.
	Hooks []kgo.Hook `mapstructure:"-"`
}

// DefaultOptions are for a broker on this machine.
func DefaultOptions() Options {
	return Options{
		Brokers:        []string{"127.0.0.1:9092"},
		ClientID:       "kudos",
		DialTimeout:    5 * time.Second,
		RequestTimeout: 30 * time.Second,
	}
}

// Validate says what is wrong with the options, all of it.
func (o Options) Validate() error {
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
	return errors.Join(append(errs, o.files().Validate(o.TLS), o.validateSASL())...)
}

// NewClient makes a client with these options and extra ones. It connects on first use; Close it.
func (o Options) NewClient(log *slog.Logger, extra ...kgo.Opt) (*kgo.Client, error) {
	if err := o.CheckFiles(); err != nil {
		return nil, err
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(o.Brokers...),
		kgo.ClientID(o.ClientID),
		kgo.WithLogger(quietClient{kslog.New(log.With("component", "kafka"))}),
		kgo.DisableClientMetrics(),
		kgo.WithHooks(o.Hooks...),
		kgo.Dialer(o.dial),
		kgo.RetryTimeout(o.RequestTimeout),
		// A leader that moved is looked for at this pace; the client's own 5 s would be as long a pause.
		kgo.MetadataMinAge(250 * time.Millisecond),
	}
	if mechanism := o.mechanism(); mechanism != nil {
		opts = append(opts, kgo.SASL(mechanism))
	}
	cl, err := kgo.NewClient(append(opts, extra...)...)
	if err != nil {
		return nil, fmt.Errorf("kafka client for %v: %w", o.Brokers, err)
	}
	return cl, nil
}

// quietClient leaves out what the client says of its daily work: several lines a transaction.
type quietClient struct{ kgo.Logger }

func (q quietClient) Level() kgo.LogLevel { return min(q.Logger.Level(), kgo.LogLevelWarn) }
