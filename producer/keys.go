package producer

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// The bounds of looking at the issuer's keys. Constants: no workload asks for others.
const (
	lookTimeout = 5 * time.Second
	// lookPause is between looks that tokens with an unknown key ask for, however many.
	lookPause = 10 * time.Second
	// lookWait is how long such a request waits for the look.
	lookWait = 2 * time.Second
	// retryPause follows a look that failed.
	retryPause   = 10 * time.Second
	maxKeysBytes = 1 << 20
)

var (
	errNoKeys     = errors.New("the issuer's keys have not been read yet")
	errUnknownKey = errors.New("no such key")
)

// keyring holds the issuer's public keys. It looks at their source again in the
// background, at an interval, and soon after a token that names a key which is not there.
// What was read holds until something else was: while the issuer is away users go on.
type keyring struct {
	source string // a file or a URL
	every  time.Duration
	retry  time.Duration
	wait   time.Duration // of a request for a look
	client *http.Client
	now    func() time.Time
	log    *slog.Logger

	wanted chan struct{} // has one while a request asks for a look
	mu     struct {
		sync.Mutex
		keys     keySet
		readAt   time.Time     // when keys were
		lookedAt time.Time     // when the last look ended, well or not
		err      error         // of the last look
		ended    chan struct{} // closed when the next look ends
	}
}

func newKeyring(o Options, log *slog.Logger) *keyring {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableKeepAlives = true // nothing is left running
	k := &keyring{
		source: o.JWKS, every: o.JWKSRefreshInterval, retry: min(retryPause, o.JWKSRefreshInterval), wait: lookWait,
		client: &http.Client{
			Timeout: lookTimeout, Transport: transport,
			// The keys are where the setting says, and not where somebody else does.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		now: time.Now, log: log, wanted: make(chan struct{}, 1),
	}
	k.mu.ended = make(chan struct{})
	return k
}

// run keeps the keys fresh until ctx ends.
func (k *keyring) run(ctx context.Context) {
	for {
		pause := k.every
		if k.look(ctx) != nil {
			pause = k.retry
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-k.wanted:
		}
		if timer.Stop(); ctx.Err() != nil {
			return
		}
	}
}

// look reads the source, and logs when that begins to fail and when it works again.
func (k *keyring) look(ctx context.Context) error {
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
	k.mu.err, k.mu.lookedAt = err, k.now()
	if err == nil {
		k.mu.keys, k.mu.readAt = keys, k.mu.lookedAt
	}
	select { // whoever asked during the look has it
	case <-k.wanted:
	default:
	}
	close(k.mu.ended)
	k.mu.ended = make(chan struct{})
	return err
}

// find returns the key that a token is to be verified with. For one that is not there it
// asks for another look, and waits for that.
func (k *keyring) find(ctx context.Context, kid, alg string) (crypto.PublicKey, error) {
	key, err := k.known(kid, alg)
	if errors.Is(err, errUnknownKey) && k.lookAgain(ctx) {
		return k.known(kid, alg)
	}
	return key, err
}

func (k *keyring) known(kid, alg string) (crypto.PublicKey, error) {
	k.mu.Lock()
	keys := k.mu.keys
	k.mu.Unlock()
	if keys == nil {
		return nil, errNoKeys
	}
	if key, ok := keys.find(kid, alg); ok {
		return key, nil
	}
	return nil, errUnknownKey
}

// lookAgain says whether there was another look. Anybody can name keys that are not
// there, so there is none for lookPause after the last one.
func (k *keyring) lookAgain(ctx context.Context) bool {
	k.mu.Lock()
	ended, pausing := k.mu.ended, k.now().Sub(k.mu.lookedAt) < lookPause
	if !pausing {
		select { // under the lock: a look that ends takes it back
		case k.wanted <- struct{}{}:
		default:
		}
	}
	k.mu.Unlock()
	if pausing {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, k.wait)
	defer cancel()
	select {
	case <-ended:
		return true
	case <-ctx.Done():
		return false
	}
}

// ready is nil once there are keys.
func (k *keyring) ready() error {
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

// readTimestamp is when the keys were read, in Unix seconds; 0: never, or there are none.
func (k *keyring) readTimestamp() float64 {
	if k == nil {
		return 0
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mu.keys == nil {
		return 0
	}
	return float64(k.mu.readAt.UnixMilli()) / 1000
}

func isURL(source string) bool { return strings.Contains(source, "://") }

func (k *keyring) readSource(ctx context.Context) (keySet, error) {
	open := k.openFile
	if isURL(k.source) {
		open = k.openURL
	}
	source, err := open(ctx)
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

func (k *keyring) openFile(context.Context) (io.ReadCloser, error) { return os.Open(k.source) }

func (k *keyring) openURL(ctx context.Context) (io.ReadCloser, error) {
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
