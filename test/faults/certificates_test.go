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
func (s *env) testClientCertificates() {
	for _, c := range []struct{ server, to, flag, restarted string }{
		{alpha, sharded.CacheServer, "cache-kubeconfig", sharded.CacheServer},
		{beta, root, "root-shard-kubeconfig-file", root},
		{sharded.FrontProxy, "shards", "mapping-file", beta},
	}[:scaled(1, 3)] {
		began := time.Now()
		series := fmt.Sprintf("atoll_certificate_expiration_timestamp_seconds{flag=%q", c.flag)
		s.expectExpiry(c.server, series, time.Hour)
		s.reissueClient(c.server, c.to, 10*time.Minute)
		s.expectExpiry(c.server, series, 10*time.Minute)
		s.reissueClient(c.server, c.to, -time.Second)
		s.expectExpiry(c.server, series, -time.Second)
		s.Kill(s.T, c.restarted) // so that no connection from before remains
		s.restart(c.restarted)
		s.WaitReady(s.T, c.restarted)
		if c.to == sharded.CacheServer { // its log has no entries of clients
			s.waitForLag(c.server)
		} else {
			s.waitForLog(c.restarted, "certificate has expired or is not yet valid")
		}
		s.reissueClient(c.server, c.to, time.Hour)
		s.expectExpiry(c.server, series, time.Hour)
		s.waitForRecovery(root, alpha, beta)
		s.bind(s.createWorkspace("renewed-"+c.server, alpha))
		s.Logf("%s: --%s expired, and renewed without a restart, within %s", c.server, c.flag, time.Since(began).Round(time.Second))
	}
	for server, flag := range map[string]string{sharded.CacheServer: "tls-cert-file", sharded.FrontProxy: "shards-kubeconfig", root: "tls-cert-file"} {
		s.expectExpiry(server, fmt.Sprintf("atoll_certificate_expiration_timestamp_seconds{flag=%q", flag), time.Hour)
	}
}

func (s *env) reissueClient(server, to string, validity time.Duration) {
	s.Helper()
	if err := s.Layout().ReissueClient(server, to, validity); err != nil {
		s.Fatal(err)
	}
}

// waitForLag waits until a shard reports that the cache server does not serve it.
func (s *env) waitForLag(shard string) {
	s.Helper()
	shardtesting.Eventually(s.T, "the lag is told", func(ctx context.Context) error {
		const enough = 2
		lag, err := s.lag(ctx, shard, "read")
		if err == nil && lag < enough {
			return fmt.Errorf("%v s", lag)
		}
		return err
	})
}

// expectExpiry checks that a metric reports when a certificate expires. The certificate was issued some minutes ago.
func (s *env) expectExpiry(server, series string, in time.Duration) {
	s.Helper()
	shardtesting.Eventually(s.T, "the metric tells the expiry", func(ctx context.Context) error {
		value, err := s.metric(ctx, server, series)
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
func (s *env) expireCertificate(server string) {
	s.Helper()
	s.Kill(s.T, server)
	if err := s.Layout().Reissue(server, -time.Second); err != nil {
		s.Fatal(err)
	}
	s.restart(server)
}

func (s *env) renewCertificate(server string) {
	s.Helper()
	if err := s.Layout().Reissue(server, time.Hour); err != nil {
		s.Fatal(err)
	}
	s.WaitReady(s.T, server)
}
