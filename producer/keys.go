package producer

import (
	"context"
	"crypto"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Limits for refreshing the issuer's keys. Constants: no workload asks for others.
const (
	lookTimeout = 5 * time.Second
	// lookPause is between refreshes that tokens with an unknown key ask for, however many.
	lookPause = 10 * time.Second
	// lookWait is how long such a request waits for the refresh.
	lookWait = 2 * time.Second
	// retryPause follows a refresh that failed.
	retryPause   = 10 * time.Second
	maxKeysBytes = 1 << 20
)

var (
	errNoKeys     = errors.New("the issuer's keys have not been read yet")
	errUnknownKey = errors.New("no such key")
)

// keyring holds the issuer's public keys. It reads their source again in the background: at an interval, and soon after
// a token that names a key which is not there. Keys hold until others were read: while the issuer is away users go on.
type keyring struct {
	source string // a file or a URL
	every  time.Duration
	retry  time.Duration
	wait   time.Duration // of a request for a refresh
	client *http.Client
	now    func() time.Time
	log    *slog.Logger

	wanted chan chan struct{} // has what a request that asks for a refresh waits for: it is closed once there was one
	mu     struct {
		sync.Mutex
		keys   keySet
		readAt time.Time // when keys were
		err    error     // of the last refresh
	}
}

func newKeyring(o Options, log *slog.Logger) *keyring {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableKeepAlives = true // nothing is left running
	return &keyring{
		source: o.JWKS, every: o.JWKSRefreshInterval, retry: min(retryPause, o.JWKSRefreshInterval), wait: lookWait,
		client: &http.Client{
			Timeout: lookTimeout, Transport: transport,
			// The keys are where the setting says, and not where somebody else does.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		now: time.Now, log: log, wanted: make(chan chan struct{}),
	}
}

// run keeps the keys fresh until ctx ends; nil has none. Anybody can name keys that are not there: whoever asks for a
// refresh within lookPause of the last one hears at once that there was one.
func (k *keyring) run(ctx context.Context) error {
	if k == nil {
		return nil
	}
	var refreshed time.Time
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var asked chan struct{}
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case asked = <-k.wanted:
		}
		if asked == nil || k.now().Sub(refreshed) >= lookPause {
			pause := k.every
			if k.refresh(ctx) != nil {
				pause = k.retry
			}
			refreshed = k.now()
			timer.Reset(pause)
		}
		if asked != nil {
			close(asked)
		}
	}
}

// refresh reads the source, and logs when that begins to fail and when it works again.
func (k *keyring) refresh(ctx context.Context) error {
	keys, err := k.readSource(ctx)
	if ctx.Err() != nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case err != nil && k.mu.err == nil:
		k.log.Warn("the issuer's keys cannot be read; those read before hold on", "jwks", k.source, "err", err)
	case err == nil && (k.mu.err != nil || k.mu.keys == nil):
		k.log.Info("the issuer's keys are read", "jwks", k.source, "keys", len(keys))
	}
	if k.mu.err = err; err == nil {
		k.mu.keys, k.mu.readAt = keys, k.now()
	}
	return err
}

// find returns the key that a token is to be verified with. For one that is not there it
// asks for a refresh, and waits for that.
func (k *keyring) find(ctx context.Context, kid, alg string) (crypto.PublicKey, error) {
	key, err := k.known(kid, alg)
	if !errors.Is(err, errUnknownKey) {
		return key, err
	}
	ctx, cancel := context.WithTimeout(ctx, k.wait)
	defer cancel()
	refreshed := make(chan struct{})
	select {
	case k.wanted <- refreshed:
	case <-ctx.Done():
	}
	select {
	case <-refreshed:
	case <-ctx.Done():
	}
	return k.known(kid, alg)
}

func (k *keyring) known(kid, alg string) (crypto.PublicKey, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mu.keys == nil {
		return nil, errNoKeys
	}
	return k.mu.keys.find(kid, alg)
}

// ready is nil once there are keys, or if none are needed.
func (k *keyring) ready() error {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.mu.keys != nil:
		return nil
	case k.mu.err != nil:
		return fmt.Errorf("producer: the keys of producer.jwks cannot be read: %w", k.mu.err)
	}
	return fmt.Errorf("producer: %w (producer.jwks)", errNoKeys)
}

// readTimestamp is when the keys were read, in Unix seconds; 0: never, or none are needed.
func (k *keyring) readTimestamp() float64 {
	if k == nil {
		return 0
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mu.readAt.IsZero() {
		return 0
	}
	return float64(k.mu.readAt.UnixMilli()) / 1000
}

func isURL(source string) bool { return strings.Contains(source, "://") }

func (k *keyring) readSource(ctx context.Context) (keySet, error) {
	source, err := k.open(ctx)
	if err != nil {
		return nil, err
	}
	defer source.Close()
	raw, err := io.ReadAll(io.LimitReader(source, maxKeysBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading %s: %w", k.source, err)
	case len(raw) > maxKeysBytes:
		return nil, fmt.Errorf("%s has more than %d bytes", k.source, maxKeysBytes)
	}
	keys, err := parseKeys(raw)
	if err != nil {
		return nil, fmt.Errorf("%s %w", k.source, err)
	}
	return keys, nil
}

func (k *keyring) open(ctx context.Context) (io.ReadCloser, error) {
	if !isURL(k.source) {
		return os.Open(k.source)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.source, nil)
	if err != nil {
		return nil, err
	}
	resp, err := k.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("%s answers %s", k.source, resp.Status), resp.Body.Close())
	}
	return resp.Body, nil
}

// keySet are public keys by their ids. The algorithm of one is the only one that it is for, if it has any; which
// others fit its type is the verifier's to know.
type keySet map[string]jose.JSONWebKey

// find returns the key for a token's kid and algorithm. A token without a kid can only
// mean the key of a set that has no other.
func (s keySet) find(kid, alg string) (crypto.PublicKey, error) {
	key, ok := s[kid]
	if kid == "" && len(s) == 1 {
		for _, key = range s {
			ok = true
		}
	}
	if !ok || key.Algorithm != "" && key.Algorithm != alg {
		return nil, errUnknownKey
	}
	return key.Key, nil
}

// parseKeys reads a set. It skips keys of other kinds and for other uses, as the RFC wishes: an issuer may have those
// for others.
func parseKeys(raw []byte) (keySet, error) {
	var doc struct{ Keys []json.RawMessage }
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, fmt.Errorf("is no JSON Web Key Set: %w", err)
	}
	keys := keySet{}
	var errs []error
	for i, raw := range doc.Keys {
		var j jose.JSONWebKey
		err := json.Unmarshal(raw, &j)
		if err == nil {
			err = checkKey(j)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("key %d: %w", i+1, err))
			continue
		}
		keys[j.KeyID] = j.Public()
	}
	if len(keys) == 0 {
		return nil, errors.Join(append([]error{errors.New("has no key that can be used")}, errs...)...)
	}
	return keys, nil
}

// checkKey refuses keys that are not to verify tokens with: also RSA keys below 2048 bits (RFC 7518, 3.3), or larger
// than is quick.
func checkKey(j jose.JSONWebKey) error {
	if j.Use != "" && j.Use != "sig" {
		return fmt.Errorf("is not for signatures, but for %.20q", j.Use)
	}
	switch key := j.Public().Key.(type) {
	case nil:
		return errors.New("is not a public key")
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits < 2048 || bits > 8192 {
			return fmt.Errorf("has %d bits, not 2048 to 8192", bits)
		}
	}
	return nil
}
