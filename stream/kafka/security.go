package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"kudos/httpserver/tlsfiles"
)

// This file sets up TLS and SASL.

const (
	saslPlain    = "PLAIN"
	saslScram256 = "SCRAM-SHA-256"
	saslScram512 = "SCRAM-SHA-512"
)

// CheckFiles reads the TLS files. They are read again for each connection, but errors in them should show at the start.
func (o Options) CheckFiles() error { return o.files().Check(o.TLS) }

// PasswordReadable reports whether the password crosses the network in plain text.
func (o Options) PasswordReadable() bool { return o.SASLMechanism == saslPlain && !o.TLS }

// LogValue keeps the password out of logs.
func (o Options) LogValue() slog.Value {
	return slog.GroupValue(slog.Any("brokers", o.Brokers), slog.String("client_id", o.ClientID),
		slog.Bool("tls", o.TLS), slog.String("sasl_mechanism", o.SASLMechanism), slog.String("sasl_user", o.SASLUser))
}

func (o Options) files() tlsfiles.Files {
	return tlsfiles.Files{Setting: "kafka.tls", CA: o.TLSCA, Cert: o.TLSCert, Key: o.TLSKey}
}

func (o Options) validateSASL() error {
	switch o.SASLMechanism {
	case "":
		if o.SASLUser+o.SASLPassword != "" {
			return errors.New("kafka.sasl_user and kafka.sasl_password have no effect without kafka.sasl_mechanism: " +
				"set it, for example to SCRAM-SHA-512")
		}
	case saslPlain, saslScram256, saslScram512:
		if o.SASLUser == "" || o.SASLPassword == "" {
			return fmt.Errorf("kafka.sasl_mechanism %s needs kafka.sasl_user and kafka.sasl_password", o.SASLMechanism)
		}
	default:
		return fmt.Errorf("kafka.sasl_mechanism: %q is not one of %s, %s, %s", o.SASLMechanism, saslPlain, saslScram256,
			saslScram512)
	}
	return nil
}

// mechanism returns nil if the client does not authenticate.
func (o Options) mechanism() sasl.Mechanism {
	switch o.SASLMechanism {
	case saslPlain:
		return plain.Auth{User: o.SASLUser, Pass: o.SASLPassword}.AsMechanism()
	case saslScram256:
		return scram.Auth{User: o.SASLUser, Pass: o.SASLPassword}.AsSha256Mechanism()
	case saslScram512:
		return scram.Auth{User: o.SASLUser, Pass: o.SASLPassword}.AsSha512Mechanism()
	}
	return nil
}

func (o Options) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: o.DialTimeout}
	if !o.TLS {
		return dialer.DialContext(ctx, network, address)
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	config, err := o.files().Config(host)
	if err != nil { // they may be about to be replaced: to the client it is a broker that it cannot reach
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	return (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext(ctx, network, address)
}
