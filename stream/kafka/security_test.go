package kafka

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kudos/dev/testkit"
	"kudos/integration/stack"
)

const password, wrongPassword = "s3cr=t, really", "hunter2" // must never be printed

// serverTLS returns a broker's TLS configuration, which requires client certificates of the same authority.
func serverTLS(t *testing.T, a *stack.Authority) *tls.Config {
	t.Helper()
	own := a.IssueForTest(t, "broker")
	pair, err := tls.LoadX509KeyPair(own.Cert, own.Key)
	require.NoError(t, err)
	text, err := os.ReadFile(a.CA())
	require.NoError(t, err)
	trusted := x509.NewCertPool()
	require.True(t, trusted.AppendCertsFromPEM(text))
	return &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: trusted,
		ClientAuth: tls.RequireAndVerifyClientCert}
}

func (o Options) ask(t *testing.T, log *slog.Logger) error {
	t.Helper()
	cl, err := o.NewClient(log)
	require.NoError(t, err)
	defer cl.Close()
	_, err = LookUpTopics(testkit.Context(t), cl, input)
	return err
}

// Each mechanism connects, with certificates on both sides. A wrong password is a permission error, and not printed.
func TestClientsConnectByTLSAndSASL(t *testing.T) {
	t.Parallel()
	a := stack.NewAuthority(t)
	c := newCluster(t, kfake.TLS(serverTLS(t, a)), kfake.EnableSASL(), kfake.SeedTopics(1, input),
		kfake.Superuser(saslPlain, "plain", password), kfake.Superuser(saslScram256, "one", password),
		kfake.Superuser(saslScram512, "two", password))
	own := a.IssueForTest(t, "client")
	o := c.kafka
	o.TLS, o.TLSCA, o.TLSCert, o.TLSKey = true, a.CA(), own.Cert, own.Key
	for mechanism, user := range map[string]string{saslPlain: "plain", saslScram256: "one", saslScram512: "two"} {
		o.SASLMechanism, o.SASLUser, o.SASLPassword = mechanism, user, password
		require.NoError(t, o.Validate())
		require.NoError(t, o.CheckFiles())
		require.NoError(t, o.ask(t, testkit.Log()), mechanism)

		o.SASLPassword = wrongPassword
		// as a real broker answers
		c.ControlKey(int16(kmsg.SASLAuthenticate), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
			resp := kreq.ResponseKind().(*kmsg.SASLAuthenticateResponse)
			resp.ErrorCode = kerr.SaslAuthenticationFailed.Code
			return resp, nil, true
		})
		var log bytes.Buffer
		err := o.ask(t, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
		require.ErrorIs(t, err, kerr.SaslAuthenticationFailed, mechanism)
		require.NotContains(t, err.Error()+log.String(), wrongPassword)
	}
}

// A running client connects with the current content of the files.
func TestCertificateIsReplacedWhileClientsAreConnected(t *testing.T) {
	t.Parallel()
	a := stack.NewAuthority(t)
	o, dir := newCluster(t, kfake.TLS(serverTLS(t, a)), kfake.SeedTopics(1, input)).kafka, t.TempDir()
	o.RequestTimeout = time.Second // of attempts with the wrong certificate
	o.TLS, o.TLSCA, o.TLSCert, o.TLSKey = true, a.CA(), filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	install := func(a *stack.Authority) {
		own := a.IssueForTest(t, "client")
		for from, to := range map[string]string{own.Cert: o.TLSCert, own.Key: o.TLSKey} {
			text, err := os.ReadFile(from)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(to, text, 0o600))
		}
	}
	install(stack.NewAuthority(t)) // which the broker does not trust
	cl, err := o.NewClient(testkit.Log())
	require.NoError(t, err)
	defer cl.Close()
	require.Error(t, cl.Ping(testkit.Context(t)))
	install(a)
	_, err = LookUpTopics(testkit.Context(t), cl, input)
	require.NoError(t, err)
}

type tries chan error

func (t tries) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	select {
	case t <- err:
	default: // nobody waits for more than the first
	}
}

// While certificate and key do not match, records wait as for an unavailable broker.
func TestFilesAreReplacedMeanwhile(t *testing.T) {
	t.Parallel()
	a := stack.NewAuthority(t)
	c := newCluster(t, kfake.TLS(serverTLS(t, a)), kfake.SeedTopics(1, input))
	own, other := a.IssueForTest(t, "client"), a.IssueForTest(t, "other")
	o := c.kafka
	o.TLS, o.TLSCA, o.TLSCert, o.TLSKey = true, a.CA(), own.Cert, own.Key
	failed := make(tries)
	o.Hooks = []kgo.Hook{failed}
	cl, err := o.NewClient(testkit.Log())
	require.NoError(t, err)
	defer cl.Close()
	ctx := testkit.Context(t)
	require.NoError(t, cl.ProduceSync(ctx, &kgo.Record{Topic: input}).FirstErr())
	right, err := os.ReadFile(own.Key)
	require.NoError(t, err)
	wrong, err := os.ReadFile(other.Key)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(own.Key, wrong, 0o600))
	var away *net.OpError // by which clients know that they may retry
	_, err = o.dial(ctx, "tcp", o.Brokers[0])
	require.ErrorAs(t, err, &away)
	require.Equal(t, "dial", away.Op)
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		return nil, errors.New("the broker ends the connection"), true
	})
	answer := testkit.Later(func() error { return cl.ProduceSync(ctx, &kgo.Record{Topic: input}).FirstErr() })
	require.ErrorContains(t, <-failed, "does not match")
	require.NoError(t, os.WriteFile(own.Key, right, 0o600))
	require.NoError(t, <-answer)
}

func TestKafkaSecurityOptions(t *testing.T) {
	a := stack.NewAuthority(t)
	one, other := a.IssueForTest(t, "one"), a.IssueForTest(t, "other")
	for name, c := range map[string]struct {
		set  func(*Options)
		want []string // none: the options are valid
	}{
		"none":                      {func(*Options) {}, nil},
		"TLS with the system's CAs": {func(o *Options) { o.TLS = true }, nil},
		"files without TLS":         {func(o *Options) { o.TLSCA = a.CA() }, []string{"kafka.tls is false"}},
		"certificate without key": {func(o *Options) { o.TLS, o.TLSCert = true, one.Cert },
			[]string{"kafka.tls_cert and kafka.tls_key"}},
		"key of another certificate": {func(o *Options) { o.TLS, o.TLSCert, o.TLSKey = true, one.Cert, other.Key },
			[]string{"kafka.tls_key", "does not match"}},
		"missing file": {func(o *Options) { o.TLS, o.TLSCA = true, "/nowhere/ca.pem" },
			[]string{"kafka.tls_ca", "/nowhere/ca.pem"}},
		"unknown mechanism": {func(o *Options) { o.SASLMechanism = "scram" },
			[]string{`kafka.sasl_mechanism: "scram" is not one of PLAIN`}},
		"mechanism without password": {func(o *Options) { o.SASLMechanism, o.SASLUser = saslPlain, "kudos" },
			[]string{"PLAIN needs kafka.sasl_user and kafka.sasl_password"}},
		"password without mechanism": {func(o *Options) { o.SASLPassword = password },
			[]string{"kafka.sasl_mechanism: set it"}},
		"all errors together": {func(o *Options) { o.TLSCA, o.SASLUser, o.Brokers = "x", "kudos", nil },
			[]string{"kafka.brokers", "kafka.tls is", "kafka.sasl_mechanism"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := DefaultOptions()
			c.set(&o)
			err := o.Validate()
			if err == nil {
				var cl *kgo.Client
				if cl, err = o.NewClient(testkit.Log()); err == nil {
					cl.Close()
				}
			}
			if c.want == nil {
				require.NoError(t, err)
			}
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

func TestKafkaPasswordsStayOutOfLogs(t *testing.T) {
	o := DefaultOptions()
	o.SASLMechanism, o.SASLUser, o.SASLPassword = saslPlain, "kudos", password
	var line bytes.Buffer
	slog.New(slog.NewTextHandler(&line, nil)).Info("starting", "kafka", o)
	require.NotContains(t, line.String(), password)
	require.Contains(t, line.String(), "kafka.sasl_user=kudos")
	require.True(t, o.PasswordReadable())
	o.TLS = true
	require.False(t, o.PasswordReadable())
}
