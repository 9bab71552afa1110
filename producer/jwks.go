package producer

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
)

// keySet are public keys by their ids.
type keySet map[string]publicKey

// publicKey verifies signatures. alg is the one algorithm that it is for, if it says so;
// which others fit its type is the verifier's to know.
type publicKey struct {
	key crypto.PublicKey
	alg string
}

// find returns the key for a token's kid and algorithm. A token without a kid can only
// mean the key of a set that has no other.
func (s keySet) find(kid, alg string) (crypto.PublicKey, bool) {
	key, ok := s[kid]
	if kid == "" && len(s) == 1 {
		for _, key = range s {
			ok = true
		}
	}
	if !ok || key.alg != "" && key.alg != alg {
		return nil, false
	}
	return key.key, true
}

// jwk is a key in a JSON Web Key Set (RFC 7517; its parameters: RFC 7518, 6, and RFC 8037).
type jwk struct {
	Kty, Kid, Use, Alg string
	N, E               string // RSA
	Crv, X, Y          string // EC; OKP without Y
}

// parseKeys reads a set. Keys of other kinds and for other uses are passed over, as the
// RFC wishes: an issuer may have those for others.
func parseKeys(raw []byte) (keySet, error) {
	var doc struct{ Keys []json.RawMessage }
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, fmt.Errorf("is no JSON Web Key Set: %w", err)
	}
	keys := keySet{}
	var errs []error
	for i, raw := range doc.Keys {
		var j jwk
		err := json.Unmarshal(raw, &j)
		if err == nil {
			var key publicKey
			if key, err = j.public(); err == nil {
				keys[j.Kid] = key
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("key %d (%.40q): %w", i+1, j.Kid, err))
		}
	}
	if len(keys) == 0 {
		return nil, errors.Join(append([]error{errors.New("has no key that can be used")}, errs...)...)
	}
	return keys, nil
}

func (j jwk) public() (key publicKey, err error) {
	key.alg = j.Alg
	switch {
	case j.Use != "" && j.Use != "sig":
		return key, fmt.Errorf("is not for signatures, but for %.20q", j.Use)
	case j.Kty == "RSA":
		key.key, err = rsaKey(j.N, j.E)
	case j.Kty == "EC":
		key.key, err = ecKey(j.Crv, j.X, j.Y)
	case j.Kty == "OKP" && j.Crv == "Ed25519":
		key.key, err = ed25519Key(j.X)
	default:
		return key, fmt.Errorf("is neither RSA, nor EC, nor OKP with Ed25519, but %.20q %.20q", j.Kty, j.Crv)
	}
	return key, err
}

// rsaKey takes at least 2048 bits (RFC 7518, 3.3), and no more than is quick to verify.
func rsaKey(modulus, exponent string) (crypto.PublicKey, error) {
	n, e, err := decodeTwo(modulus, exponent)
	if err != nil {
		return nil, err
	}
	key := &rsa.PublicKey{N: new(big.Int).SetBytes(n), E: int(new(big.Int).SetBytes(e).Int64())}
	if bits := key.N.BitLen(); bits < 2048 || bits > 8192 {
		return nil, fmt.Errorf("has %d bits, not 2048 to 8192", bits)
	}
	if len(e) > 4 || key.E < 3 || key.E%2 == 0 {
		return nil, errors.New("has an exponent that is none")
	}
	return key, nil
}

func ecKey(crv, x, y string) (crypto.PublicKey, error) {
	curves := map[string]struct {
		curve elliptic.Curve
		size  int // of a coordinate in bytes
	}{"P-256": {elliptic.P256(), 32}, "P-384": {elliptic.P384(), 48}, "P-521": {elliptic.P521(), 66}}
	c, ok := curves[crv]
	if !ok {
		return nil, fmt.Errorf("is on %.20q, and not on P-256, P-384 or P-521", crv)
	}
	xBytes, yBytes, err := decodeTwo(x, y)
	if err != nil {
		return nil, err
	}
	if len(xBytes) != c.size || len(yBytes) != c.size {
		return nil, fmt.Errorf("has coordinates of %d and %d bytes, not of %d", len(xBytes), len(yBytes), c.size)
	}
	const uncompressed = 4 // SEC 1, 2.3.3
	return ecdsa.ParseUncompressedPublicKey(c.curve, slices.Concat([]byte{uncompressed}, xBytes, yBytes))
}

func ed25519Key(x string) (crypto.PublicKey, error) {
	key, err := decodePart(x)
	if err == nil && len(key) != ed25519.PublicKeySize {
		err = fmt.Errorf("has %d bytes, not %d", len(key), ed25519.PublicKeySize)
	}
	return ed25519.PublicKey(key), err
}

func decodeTwo(a, b string) (aBytes, bBytes []byte, err error) {
	aBytes, errA := decodePart(a)
	bBytes, errB := decodePart(b)
	return aBytes, bBytes, errors.Join(errA, errB)
}

// decodePart reads base64url, which some issuers fill up with "=".
func decodePart(text string) ([]byte, error) {
	return base64.RawURLEncoding.DecodeString(strings.TrimRight(text, "="))
}
