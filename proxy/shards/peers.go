package shards

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

const (
	// adminPath is the path of the admin workspace, which every shard serves with the same content.
	adminPath = "/services/admin"
	// peerFailurePeriod is the time for which a peer that did not answer is the last one to be asked.
	peerFailurePeriod = 30 * time.Second
	// maxPeerAttempts bounds the peers that one request asks, each of which may take as long as a connection takes to fail.
	maxPeerAttempts = 4
)

// Peers are servers that the Shard objects are read from, at their admin workspaces.
type Peers struct {
	// Config has the credentials for all of them. Its host is ignored.
	Config *rest.Config
	// Seeds are the URLs of those that are known at the start, without paths; at least one. The shards that they name join them.
	Seeds []*url.URL
}

// peerTransport sends each request to another peer, so that Shards are read while some shards are down. It stores one entry for each shard.
type peerTransport struct {
	base  http.RoundTripper
	seeds []string // hosts

	mu sync.Mutex
	// shards has the host of each shard, by its name.
	shards map[string]string
	// failed has when a host failed. Only hosts of seeds and shards are in it.
	failed map[string]time.Time
	turn   int
}

// newPeerConfig returns a client configuration for the admin workspace of all peers, and their transport.
func newPeerConfig(peers *Peers) (*rest.Config, *peerTransport) {
	t := &peerTransport{shards: map[string]string{}, failed: map[string]time.Time{}}
	for _, seed := range peers.Seeds {
		t.seeds = append(t.seeds, seed.Host)
	}
	config := rest.CopyConfig(peers.Config)
	config.Host = peers.Seeds[0].Scheme + "://" + peers.Seeds[0].Host + adminPath
	config.Wrap(func(base http.RoundTripper) http.RoundTripper {
		t.base = base
		return t
	})
	return config, t
}

// RoundTrip implements http.RoundTripper. A request with a body is sent once.
func (t *peerTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	var failures []error
	for _, host := range t.nextHosts() {
		attempt := req.Clone(req.Context())
		attempt.URL.Host, attempt.Host = host, host
		response, err := t.base.RoundTrip(attempt)
		if req.Context().Err() != nil {
			return response, err
		}
		t.record(host, err)
		if err == nil {
			return response, nil
		}
		failures = append(failures, fmt.Errorf("%s: %w", host, err))
		if req.Body != nil && req.Body != http.NoBody {
			break
		}
	}
	return nil, errors.Join(failures...)
}

// nextHosts returns the hosts for a request.
func (t *peerTransport) nextHosts() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	hosts := slices.Clone(t.seeds)
	for _, host := range t.shards {
		hosts = append(hosts, host)
	}
	slices.Sort(hosts)
	hosts = slices.Compact(hosts)
	t.turn++
	return orderPeers(hosts, t.turn, func(host string) bool { return time.Since(t.failed[host]) < peerFailurePeriod })
}

// orderPeers returns the hosts of a turn: each turn begins with another one, and those that have failed are last.
func orderPeers(hosts []string, turn int, hasFailed func(string) bool) []string {
	var healthy, failed []string
	for i := range hosts {
		host := hosts[(turn+i)%len(hosts)]
		if hasFailed(host) {
			failed = append(failed, host)
		} else {
			healthy = append(healthy, host)
		}
	}
	ordered := append(healthy, failed...)
	return ordered[:min(len(ordered), maxPeerAttempts)]
}

func (t *peerTransport) record(host string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil || !t.isPeer(host) {
		delete(t.failed, host)
		return
	}
	t.failed[host] = time.Now()
}

// isPeer reports whether a seed or a shard has the host. Callers must hold mu.
func (t *peerTransport) isPeer(host string) bool {
	if slices.Contains(t.seeds, host) {
		return true
	}
	for _, of := range t.shards {
		if of == host {
			return true
		}
	}
	return false
}

// putShard makes a shard a peer, at its new base URL if that has changed. It does nothing if the URL is invalid.
func (t *peerTransport) putShard(shard *shardObject) {
	baseURL, err := parseBaseURL(shard.Spec.BaseURL)
	if err != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.shards[shard.Name] = baseURL.Host
	t.forgetFailures()
}

func (t *peerTransport) removeShard(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.shards, name)
	t.forgetFailures()
}

// replaceShards makes shards the only peers besides the seeds.
func (t *peerTransport) replaceShards(all []*shardObject) {
	t.mu.Lock()
	t.shards = make(map[string]string, len(all))
	t.mu.Unlock()
	for _, shard := range all {
		t.putShard(shard)
	}
}

// forgetFailures removes the failures of hosts that are not peers anymore. Callers must hold mu.
func (t *peerTransport) forgetFailures() {
	for host := range t.failed {
		if !t.isPeer(host) {
			delete(t.failed, host)
		}
	}
}
