package httpserver

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"
	"time"
)

// watchEvery is how often the files are checked for a new certificate. They are a few KB.
const watchEvery = 10 * time.Second

// certificate is a server's TLS certificate, from two PEM files that are reloaded when they change, without a restart.
type certificate struct {
	section           string // of the settings, for messages
	certFile, keyFile string
	every             time.Duration // between checks of the files
	log               *slog.Logger

	current atomic.Pointer[tls.Certificate]
	read    [sha256.Size]byte // hash of the files that current is from; only Serve's goroutine and then watch's use it
}

// CheckPair returns an error if only one of the two files is set.
func CheckPair(certFile, keyFile string) error {
	if (certFile == "") != (keyFile == "") {
		return errors.New("tls_cert and tls_key go together; set both, or neither for plain HTTP")
	}
	return nil
}

// watch reloads changed files until ctx ends. Unusable files change nothing: only one of the two may be new already.
func (c *certificate) watch(ctx context.Context) {
	ticker := time.NewTicker(c.every)
	defer ticker.Stop()
	last := "" // last failure, logged once
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		changed, err := c.reload()
		switch {
		case err == nil:
			last = ""
			if changed {
				c.log.Info("certificate reloaded", "not_after", c.current.Load().Leaf.NotAfter)
			}
		case err.Error() != last:
			last = err.Error()
			c.log.Warn("cannot load the certificate files; keeping the current certificate", "error", err)
		}
	}
}

func (c *certificate) reload() (changed bool, err error) {
	cert, err := os.ReadFile(c.certFile)
	if err != nil {
		return false, fmt.Errorf("%s.tls_cert: %w", c.section, err)
	}
	key, err := os.ReadFile(c.keyFile)
	if err != nil {
		return false, fmt.Errorf("%s.tls_key: %w", c.section, err)
	}
	read := sha256.Sum256(slices.Concat(cert, key))
	if read == c.read {
		return false, nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return false, fmt.Errorf("%s.tls_cert %s and tls_key %s: %w", c.section, c.certFile, c.keyFile, err)
	}
	c.current.Store(&pair)
	c.read = read
	return true, nil
}
