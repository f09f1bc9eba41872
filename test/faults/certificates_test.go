package faults

import (
	"context"
	"fmt"
	"testing"
	"time"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/sharded"
)

// TestExpiredCertificates checks that a server whose certificate has expired is unavailable, and recovers with a new
// certificate without a restart.
func TestExpiredCertificates(t *testing.T) {
	s := newEnv(t, sharded.Options{})
	s.step(t, "cache server", func(s *env) {
		before := s.countFailures()
		s.expireCertificate(sharded.CacheServer)
		s.requestWorkspace("by-an-expired-cache", beta)
		s.expectServing(before, root, alpha, beta)
		s.renewCertificate(sharded.CacheServer)
		s.waitReady("by-an-expired-cache")
	})
	s.step(t, "shard", func(s *env) {
		before := s.countFailures()
		s.expireCertificate(beta)
		s.expectServing(before, root, alpha)
		s.renewCertificate(beta)
		s.waitForRecovery(beta)
	})
	s.step(t, "clients of other servers", (*env).testClientCertificates)
	s.finish()
}

// testClientCertificates lets the certificates expire with which a shard and the front proxy connect to other servers. The metric reports
// the time before that, and the servers use renewed files without a restart.
func (e *env) testClientCertificates() {
	for _, c := range []struct{ server, to, flag, restarted string }{
		{alpha, sharded.CacheServer, "cache-kubeconfig", sharded.CacheServer},
		{beta, root, "root-shard-kubeconfig-file", root},
		{sharded.FrontProxy, "shards", "mapping-file", beta},
	}[:scaled(1, 3)] {
		began := time.Now()
		series := fmt.Sprintf("atoll_certificate_expiration_timestamp_seconds{flag=%q", c.flag)
		e.expectExpiry(c.server, series, time.Hour)
		e.reissueClient(c.server, c.to, 10*time.Minute)
		e.expectExpiry(c.server, series, 10*time.Minute)
		e.reissueClient(c.server, c.to, -time.Second)
		e.expectExpiry(c.server, series, -time.Second)
		e.Kill(e.T, c.restarted) // so that no connection from before remains
		e.restart(c.restarted)
		e.WaitReady(e.T, c.restarted)
		if c.to == sharded.CacheServer { // its log has no entries of clients
			e.waitForLag(c.server)
		} else {
			e.waitForLog(c.restarted, "certificate has expired or is not yet valid")
		}
		e.reissueClient(c.server, c.to, time.Hour)
		e.expectExpiry(c.server, series, time.Hour)
		e.waitForRecovery(root, alpha, beta)
		e.bind(e.createWorkspace("renewed-"+c.server, alpha))
		e.Logf("%s: --%s expired, and renewed without a restart, within %s", c.server, c.flag, time.Since(began).Round(time.Second))
	}
	for server, flag := range map[string]string{sharded.CacheServer: "tls-cert-file", sharded.FrontProxy: "shards-kubeconfig", root: "tls-cert-file"} {
		e.expectExpiry(server, fmt.Sprintf("atoll_certificate_expiration_timestamp_seconds{flag=%q", flag), time.Hour)
	}
}

func (e *env) reissueClient(server, to string, validity time.Duration) {
	e.Helper()
	if err := e.Layout().ReissueClient(server, to, validity); err != nil {
		e.Fatal(err)
	}
}

// waitForLag waits until a shard reports that the cache server does not serve it.
func (e *env) waitForLag(shard string) {
	e.Helper()
	shardtesting.Eventually(e.T, "the lag is told", func(ctx context.Context) error {
		const enough = 2
		lag, err := e.lag(ctx, shard, "read")
		if err == nil && lag < enough {
			return fmt.Errorf("%v s", lag)
		}
		return err
	})
}

// expectExpiry checks that a metric reports when a certificate expires. The certificate was issued some minutes ago.
func (e *env) expectExpiry(server, series string, in time.Duration) {
	e.Helper()
	shardtesting.Eventually(e.T, "the metric tells the expiry", func(ctx context.Context) error {
		value, err := e.metric(ctx, server, series)
		if err != nil {
			return err
		}
		if left := time.Until(time.Unix(int64(value), 0)); left > in+time.Second || left < in-5*time.Minute {
			return fmt.Errorf("%s of %s: %s left, want %s", series, server, left, in)
		}
		return nil
	})
}

// expireCertificate restarts a server with an expired certificate, so that no connection from before remains.
func (e *env) expireCertificate(server string) {
	e.Helper()
	e.Kill(e.T, server)
	if err := e.Layout().Reissue(server, -time.Second); err != nil {
		e.Fatal(err)
	}
	e.restart(server)
}

func (e *env) renewCertificate(server string) {
	e.Helper()
	if err := e.Layout().Reissue(server, time.Hour); err != nil {
		e.Fatal(err)
	}
	e.WaitReady(e.T, server)
}
