package faults

import (
	"testing"
	"time"

	"github.com/atoll-dev/atoll/test/sharded"
)

// TestCertificatesThatHaveExpired: a server whose certificate has expired is unavailable, and recovers with a new
// certificate, without a restart.
func TestCertificatesThatHaveExpired(t *testing.T) {
	s := newSite(t, sharded.Options{})
	s.step(t, "of the cache server", func(s *site) {
		before := s.mark()
		s.expire(sharded.CacheServer)
		s.requestWorkspace("by-an-expired-cache", beta)
		s.serving(before, root, alpha, beta)
		s.renew(sharded.CacheServer)
		s.ready("by-an-expired-cache")
	})
	s.step(t, "of a shard", func(s *site) {
		before := s.mark()
		s.expire(beta)
		s.serving(before, root, alpha)
		s.renew(beta)
		s.recovers(beta)
	})
	s.finish()
}

// expire restarts a server with an expired certificate, so that no connection from before remains.
func (s *site) expire(server string) {
	s.Helper()
	s.Kill(s.T, server)
	if err := s.Layout().Reissue(server, -time.Second); err != nil {
		s.Fatal(err)
	}
	s.again(server)
}

func (s *site) renew(server string) {
	s.Helper()
	if err := s.Layout().Reissue(server, time.Hour); err != nil {
		s.Fatal(err)
	}
	s.WaitReady(s.T, server)
}
