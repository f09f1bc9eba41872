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
	rememberedChains = 4096
	// rememberFor bounds how long a chain that has expired is still taken; tokens are remembered as long.
	rememberFor = 10 * time.Second
)

// chains remembers which certificate chains were found good. Verifying the signatures of a chain costs more than all
// else the proxy does for a request, and a client sends the same chain with every one of them. That the client has
// the key was proven when its connection was opened.
type chains struct {
	verify authenticator.Request
	// options gives the roots in use; what was verified against others is forgotten.
	options func() (x509.VerifyOptions, bool)
	good    *cache.LRUExpireCache
}

type chainKey struct {
	roots *x509.CertPool
	sum   [sha256.Size]byte
}

func rememberChains(verify authenticator.Request, options func() (x509.VerifyOptions, bool)) authenticator.Request {
	return &chains{verify: verify, options: options, good: cache.NewLRUExpireCache(rememberedChains)}
}

// AuthenticateRequest asks verify unless it said yes to the same chain a moment ago. Refusals are not remembered.
func (c *chains) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	if req.TLS == nil || len(req.TLS.PeerCertificates) == 0 {
		return nil, false, nil
	}
	options, ok := c.options()
	if !ok {
		return c.verify.AuthenticateRequest(req)
	}
	key := chainKey{roots: options.Roots}
	hash := sha256.New()
	for _, certificate := range req.TLS.PeerCertificates {
		hash.Write(certificate.Raw) // self-delimiting DER
	}
	hash.Sum(key.sum[:0])
	leaf := req.TLS.PeerCertificates[0]
	if known, ok := c.good.Get(key); ok && time.Now().Before(leaf.NotAfter) {
		return known.(*authenticator.Response), true, nil
	}
	response, ok, err := c.verify.AuthenticateRequest(req)
	if ok && err == nil {
		c.good.Add(key, response, rememberFor)
	}
	return response, ok, err
}
