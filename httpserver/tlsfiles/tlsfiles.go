// Package tlsfiles makes the TLS configuration of a client's connection from PEM files. They are read for each
// connection, so that certificates can be replaced while the program runs.
//
// In come the names of files; out comes a configuration that verifies the server, or what is wrong with which file.
package tlsfiles

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// Files are what connections are made with. All may be empty.
type Files struct {
	// Setting is the setting by which TLS is used at all, for messages: kafka.tls stands beside kafka.tls_ca,
	// kafka.tls_cert and kafka.tls_key.
	Setting string
	// CA holds the certificates that servers are verified by. Empty: those that the system trusts.
	CA string
	// Cert and Key are the client's own, for servers that ask who it is. Cert may be followed by those that lead to
	// the CA.
	Cert, Key string
}

// Validate says what does not fit together, all of it; it does not look at the files. used: TLS is used at all.
func (f Files) Validate(used bool) error {
	var errs []error
	if !used && f.CA+f.Cert+f.Key != "" {
		errs = append(errs, fmt.Errorf("%[1]s is false, so that nothing is encrypted and %[1]s_ca, %[1]s_cert and "+
			"%[1]s_key mean nothing: set it to true, or leave them out", f.Setting))
	}
	if (f.Cert == "") != (f.Key == "") {
		errs = append(errs, fmt.Errorf("%[1]s_cert and %[1]s_key belong together: give both, or neither", f.Setting))
	}
	return errors.Join(errs...)
}

// Config reads the files as they are now. server is the name or address that the server's certificate must be for.
func (f Files) Config(server string) (*tls.Config, error) {
	config := &tls.Config{ServerName: server, MinVersion: tls.VersionTLS12}
	if f.CA != "" {
		text, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("%s_ca: %w", f.Setting, err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s_ca: %s holds no certificate in PEM", f.Setting, f.CA)
		}
	}
	if f.Cert != "" {
		own, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, fmt.Errorf("%[1]s_cert %[2]s with %[1]s_key %[3]s: %[4]w", f.Setting, f.Cert, f.Key, err)
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}
