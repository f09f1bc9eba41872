package identity

import (
	"crypto/sha256"
	"crypto/x509"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
)

const (
	certificateCacheSize = 4096
	// certificateTTL bounds how long an expired chain is accepted. It is that of the token cache.
	certificateTTL = 10 * time.Second
)

// certificateCache caches the users of verified certificate chains. Clients send the same chain with every request,
// and its verification is most of the cost of a request. The TLS handshake has proven that the client has the key.
type certificateCache struct {
	delegate authenticator.Request
	// verifyOptions returns the roots in use. Chains that were verified against other roots are verified again.
	verifyOptions func() (x509.VerifyOptions, bool)
	cache         *cache.LRUExpireCache
}

type certificateKey struct {
	roots *x509.CertPool
	sum   [sha256.Size]byte
}

func newCertificateCache(delegate authenticator.Request, verifyOptions func() (x509.VerifyOptions, bool)) *certificateCache {
	return &certificateCache{delegate: delegate, verifyOptions: verifyOptions, cache: cache.NewLRUExpireCache(certificateCacheSize)}
}

// AuthenticateRequest implements authenticator.Request. Failures are not cached.
func (c *certificateCache) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	if req.TLS == nil || len(req.TLS.PeerCertificates) == 0 {
		return nil, false, nil
	}
	options, ok := c.verifyOptions()
	if !ok {
		return c.delegate.AuthenticateRequest(req)
	}
	key := certificateKey{roots: options.Roots}
	hash := sha256.New()
	for _, certificate := range req.TLS.PeerCertificates {
		hash.Write(certificate.Raw) // self-delimiting DER
	}
	hash.Sum(key.sum[:0])
	leaf := req.TLS.PeerCertificates[0]
	if cached, ok := c.cache.Get(key); ok && time.Now().Before(leaf.NotAfter) {
		return cached.(*authenticator.Response), true, nil
	}
	response, ok, err := c.delegate.AuthenticateRequest(req)
	if ok && err == nil {
		c.cache.Add(key, response, certificateTTL)
	}
	return response, ok, err
}
