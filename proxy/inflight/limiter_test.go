package inflight_test

import (
	"fmt"
	"testing"

	"github.com/atoll-dev/atoll/proxy/inflight"
)

func TestLimiter(t *testing.T) {
	l := inflight.NewLimiter(inflight.Limits{Requests: 2, Watches: 1})
	var releases []func()
	acquire := func(user string, isWatch, want bool) {
		t.Helper()
		release, ok := l.Acquire(user, isWatch)
		if ok != want {
			t.Errorf("a request of %s, watch %t: accepted %t, want %t", user, isWatch, ok, want)
		}
		if ok {
			releases = append(releases, release)
		}
	}
	acquire("alice", false, true)
	acquire("alice", false, true)
	acquire("alice", false, false)
	acquire("alice", true, true) // watches have a limit of their own
	acquire("alice", true, false)
	acquire("bob", false, true)
	releases[0]()
	releases = releases[1:]
	acquire("alice", false, true)
	for _, release := range releases {
		release()
	}
	if n := l.Users(); n != 0 {
		t.Errorf("%d users are left without requests", n)
	}
}

func TestUnlimited(t *testing.T) {
	l := inflight.NewLimiter(inflight.Limits{})
	for i := range 1000 {
		if _, ok := l.Acquire("alice", i%2 == 0); !ok {
			t.Fatalf("request %d is refused", i)
		}
		if _, ok := l.Acquire(fmt.Sprint(i), false); !ok {
			t.Fatalf("the request of user %d is refused", i)
		}
	}
	if n := l.Users(); n != 1001 {
		t.Errorf("%d users", n)
	}
}
