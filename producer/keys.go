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

// Limits for refreshing the issuer's JWKS; constants, because no workload needs others.
const (
	lookTimeout  = 5 * time.Second
	lookPause    = 10 * time.Second // minimum time between refreshes that are due to tokens with an unknown key
	lookWait     = 2 * time.Second  // how long a request with such a token waits for the refresh
	retryPause   = 10 * time.Second // time until a failed refresh is retried
	maxKeysBytes = 1 << 20
)

var (
	errNoKeys     = errors.New("the issuer's keys have not been read yet")
	errUnknownKey = errors.New("no such key")
)

// keyring holds the issuer's public keys. It refreshes them in the background: at an interval, and soon after a token
// names an unknown key. If that fails, it keeps the current keys: an unavailable issuer must not lock users out.
type keyring struct {
	source string // a file or a URL
	every  time.Duration
	retry  time.Duration
	wait   time.Duration // of a request for a refresh
	client *http.Client
	now    func() time.Time
	log    *slog.Logger

	wanted chan chan struct{} // requests for a refresh; run closes the channel that was sent once there was one
	mu     struct {
		sync.Mutex
		keys   keySet
		readAt time.Time // time of the last successful refresh
		err    error     // of the last refresh
	}
}

func newKeyring(o Options, log *slog.Logger) *keyring {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableKeepAlives = true // leaves no connection open
	return &keyring{
		source: o.JWKS, every: o.JWKSRefreshInterval, retry: min(retryPause, o.JWKSRefreshInterval), wait: lookWait,
		client: &http.Client{
			Timeout: lookTimeout, Transport: transport,
			// Only the configured source is trusted, not where it redirects to.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		now: time.Now, log: log, wanted: make(chan chan struct{}),
	}
}

// run refreshes the keys until ctx ends; on nil it does nothing. Anybody can send tokens that name unknown keys, so a
// request for a refresh within lookPause of the last one is answered at once, without a refresh.
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

func (k *keyring) refresh(ctx context.Context) error {
	keys, err := k.readSource(ctx)
	if ctx.Err() != nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case err != nil && k.mu.err == nil:
		k.log.Warn("cannot read the issuer's keys; keeping those read before", "jwks", k.source, "error", err)
	case err == nil && (k.mu.err != nil || k.mu.keys == nil):
		k.log.Info("read the issuer's keys", "jwks", k.source, "keys", len(keys))
	}
	if k.mu.err = err; err == nil {
		k.mu.keys, k.mu.readAt = keys, k.now()
	}
	return err
}

// find returns the key to verify a token with. If the key is unknown, find requests a refresh and waits for it.
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

// readTimestamp returns when the keys were read, in Unix seconds; 0: never, or none are needed.
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

// keySet has keys by id. A key that names an algorithm is for that one only; else the verifier checks the key's type.
type keySet map[string]jose.JSONWebKey

// find returns the key for a token's kid and algorithm. A token without a kid matches only in a set of one key.
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

// parseKeys parses a JWKS. It skips keys of other types and uses, as RFC 7517 recommends: others may need them.
func parseKeys(raw []byte) (keySet, error) {
	var doc struct{ Keys []json.RawMessage }
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, fmt.Errorf("is not a JSON Web Key Set: %w", err)
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
		return nil, errors.Join(append([]error{errors.New("has no usable key")}, errs...)...)
	}
	return keys, nil
}

// Larger RSA keys take too long.
func init() { jose.MaxRSAModulusBits = 8192 }

// checkKey rejects keys that must not verify tokens (RSA below 2048 bits: RFC 7518, 3.3).
func checkKey(j jose.JSONWebKey) error {
	if j.Use != "" && j.Use != "sig" {
		return fmt.Errorf("is not for signatures, but for %.20q", j.Use)
	}
	switch key := j.Public().Key.(type) {
	case nil:
		return errors.New("is not a public key")
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits < 2048 {
			return fmt.Errorf("has %d bits, not 2048 to %d", bits, jose.MaxRSAModulusBits)
		}
	}
	return nil
}
