package issuers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc"
)

// retryInterval is how long the failure to discover an issuer's keys is cached.
const retryInterval = 10 * time.Second

// keySet verifies signatures with the keys that an issuer publishes. Their URL is discovered for the first token, and
// again after a failure. It implements oidc.KeySet.
type keySet struct {
	ctx       context.Context // of requests that several callers may wait for
	client    *http.Client
	issuer    string
	discovery string // URL of the discovery document; empty: the well-known one

	mu          sync.Mutex
	remote      oidc.KeySet
	failure     error
	failedAt    time.Time
	discovering chan struct{} // closed when the running discovery has ended; nil without one
}

// VerifySignature returns the payload of a token that the issuer signed.
func (k *keySet) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	keys, err := k.keys(ctx)
	if err != nil {
		return nil, err
	}
	return keys.VerifySignature(ctx, token)
}

func (k *keySet) keys(ctx context.Context) (oidc.KeySet, error) {
	k.mu.Lock()
	if k.remote == nil && k.discovering == nil && time.Since(k.failedAt) >= retryInterval {
		k.discovering = make(chan struct{})
		go k.discover()
	}
	running := k.discovering
	k.mu.Unlock()
	if running != nil {
		select {
		case <-running:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.remote == nil {
		return nil, k.failure
	}
	return k.remote, nil
}

// discover discovers the URL of the issuer's keys. The client's timeout bounds it.
func (k *keySet) discover() {
	jwksURL, err := k.fetchJWKSURL()
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		k.failure, k.failedAt = fmt.Errorf("finding the keys of the issuer: %w", err), time.Now()
	} else {
		k.remote = oidc.NewRemoteKeySet(oidc.ClientContext(k.ctx, k.client), jwksURL)
	}
	close(k.discovering)
	k.discovering = nil
}

func (k *keySet) fetchJWKSURL() (string, error) {
	address := k.discovery
	if address == "" {
		address = strings.TrimSuffix(k.issuer, "/") + "/.well-known/openid-configuration"
	}
	req, err := http.NewRequestWithContext(k.ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", err
	}
	resp, err := k.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s answers %s", address, resp.Status)
	}
	var document struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&document); err != nil {
		return "", fmt.Errorf("%s answers what is no discovery document", address) // the error must not contain the response
	}
	switch {
	case document.Issuer != k.issuer:
		return "", errors.New("the discovery document is another issuer's")
	case !strings.HasPrefix(document.Keys, "https://"):
		return "", errors.New("the discovery document names no https URL of keys")
	}
	return document.Keys, nil
}
