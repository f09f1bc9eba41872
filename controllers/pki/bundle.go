package pki

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"time"
)

// BundlePart is one input of a bundle.
type BundlePart struct {
	Source string // for errors
	PEM    []byte
}

// MergeBundle joins PEM files of certificates. Each part must contain at least one certificate and nothing else, so that the operator
// reports an invalid Secret before a server fails to start.
func MergeBundle(parts ...BundlePart) ([]byte, error) {
	var out bytes.Buffer
	for _, part := range parts {
		found := 0
		for rest := bytes.TrimSpace(part.PEM); len(rest) > 0; rest = bytes.TrimSpace(rest) {
			block, remaining := pem.Decode(rest)
			if block == nil {
				return nil, fmt.Errorf("%s holds text that is not PEM", part.Source)
			}
			if block.Type != "CERTIFICATE" {
				return nil, fmt.Errorf("%s holds a PEM block of type %q, want certificates only", part.Source, block.Type)
			}
			if _, err := x509.ParseCertificate(block.Bytes); err != nil {
				return nil, fmt.Errorf("%s: certificate %d: %w", part.Source, found+1, err)
			}
			if err := pem.Encode(&out, &pem.Block{Type: block.Type, Bytes: block.Bytes}); err != nil {
				return nil, err
			}
			found++
			rest = remaining
		}
		if found == 0 {
			return nil, fmt.Errorf("%s holds no certificate", part.Source)
		}
	}
	return out.Bytes(), nil
}

// FirstCertificate returns the first certificate of a PEM file without those that follow, or the file if it does not begin with a block.
func FirstCertificate(file []byte) []byte {
	block, _ := pem.Decode(file)
	if block == nil {
		return file
	}
	return pem.EncodeToMemory(block)
}

// ParseCertificate returns the first certificate of a PEM file, which is the leaf of a chain.
func ParseCertificate(file []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(file)
	if block == nil {
		return nil, errors.New("no PEM block")
	}
	return x509.ParseCertificate(block.Bytes)
}

// Fingerprint is the SHA-256 of a certificate in hexadecimal digits.
func Fingerprint(certificate *x509.Certificate) string {
	sum := sha256.Sum256(certificate.Raw)
	return hex.EncodeToString(sum[:])
}

// IsIssuedBy reports whether the key of an authority has signed the first certificate of a PEM file.
func IsIssuedBy(file, authority []byte) bool {
	certificate, err := ParseCertificate(file)
	if err != nil {
		return false
	}
	issuer, err := ParseCertificate(authority)
	return err == nil && certificate.CheckSignatureFrom(issuer) == nil
}

// ParseValidity returns the validity of the first certificate of a PEM file.
func ParseValidity(file []byte) (notBefore, notAfter time.Time, err error) {
	certificate, err := ParseCertificate(file)
	if err != nil {
		return time.Time{}, time.Time{}, err
	}
	return certificate.NotBefore, certificate.NotAfter, nil
}
