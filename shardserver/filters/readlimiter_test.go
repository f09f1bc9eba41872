package filters

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestReadLimiter(t *testing.T) {
	authentications := 0
	l := NewReadLimiter(func(req *http.Request) string {
		authentications++
		user := req.Header.Get("User")
		req.Header.Del("User") // as authenticators remove credentials
		return user
	})
	newRequest := func(user string) *http.Request {
		req := httptest.NewRequest(http.MethodGet, "/clusters/root:a/api", nil)
		req.Header.Set("User", user)
		return req
	}
	guess := newRequest("mallory")
	mayRead := l.For(guess)
	if authentications != 0 {
		t.Error("a request that needs no read is authenticated")
	}
	allowed := 0
	for range 10 * latestBurst {
		if mayRead() {
			allowed++
		}
	}
	if allowed < latestBurst || allowed > 2*latestBurst {
		t.Errorf("%d reads are allowed, want about %d", allowed, latestBurst)
	}
	if authentications != 1 || guess.Header.Get("User") == "" {
		t.Errorf("the request is authenticated %d times, its credentials are %q", authentications, guess.Header.Get("User"))
	}
	if !l.For(newRequest("alice"))() {
		t.Error("another user may not read")
	}
	for i := range 2 * maxReaders {
		l.For(newRequest(fmt.Sprint(i)))()
	}
	if n := l.readers.Len(); n > maxReaders {
		t.Errorf("the rates of %d users are known, want at most %d", n, maxReaders)
	}
}
