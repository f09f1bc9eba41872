package faults

import (
	"testing"
	"time"

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
	s.finish()
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
