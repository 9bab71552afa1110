package stack

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority is a certificate authority of a test's own. What it issues is for 127.0.0.1, for servers and clients alike, and lies in
// files that every account may read: databases run under another one.
type Authority struct {
	dir         string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	issued      int64
}

// Certificate are the PEM files of one holder.
type Certificate struct {
	Cert, Key string
	Both      string // in one file, as Kafka takes them
}

// certificateLife is longer than any test.
const certificateLife = 24 * time.Hour

// NewAuthority makes one whose files are removed at the test's end.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	dir, err := makeDir("", "kudos-authority-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
	a := &Authority{dir: dir}
	if err := a.begin(); err != nil {
		t.Fatalf("make a certificate authority: %v", err)
	}
	return a
}

func (a *Authority) begin() (err error) {
	if err := os.Chmod(a.dir, 0o755); err != nil {
		return err
	}
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return err
	}
	template := a.template("authority of a test")
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		return err
	}
	if a.certificate, err = x509.ParseCertificate(der); err != nil {
		return err
	}
	return writePEM(a.CA(), "CERTIFICATE", der)
}

func (a *Authority) template(name string) *x509.Certificate {
	a.issued++
	return &x509.Certificate{
		SerialNumber: big.NewInt(a.issued),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour), // clocks differ
		NotAfter:     time.Now().Add(certificateLife),
	}
}

// CA is the file with the authority's own certificate.
func (a *Authority) CA() string { return filepath.Join(a.dir, "ca.pem") }

// Issue writes a certificate for a holder. One that has been issued to the same name before is overwritten.
func (a *Authority) Issue(name string) (c Certificate, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return c, err
	}
	template := a.template(name)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	template.IPAddresses, template.DNSNames = []net.IP{net.IPv4(127, 0, 0, 1)}, []string{"localhost"}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return c, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return c, err
	}
	at := filepath.Join(a.dir, name)
	c = Certificate{Cert: at + ".pem", Key: at + ".key", Both: at + "-both.pem"}
	if err := writePEM(c.Cert, "CERTIFICATE", der); err != nil {
		return c, err
	}
	if err := writePEM(c.Key, "PRIVATE KEY", secret); err != nil {
		return c, err
	}
	return c, joinFiles(c.Both, c.Key, c.Cert)
}

// IssueForTest is Issue that may not fail.
func (a *Authority) IssueForTest(t testing.TB, name string) Certificate {
	t.Helper()
	c, err := a.Issue(name)
	if err != nil {
		t.Fatalf("issue a certificate to %s: %v", name, err)
	}
	return c
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o644)
}

func joinFiles(into string, parts ...string) error {
	var all []byte
	for _, part := range parts {
		text, err := os.ReadFile(part)
		if err != nil {
			return fmt.Errorf("join %s: %w", into, err)
		}
		all = append(all, text...)
	}
	return os.WriteFile(into, all, 0o644)
}
