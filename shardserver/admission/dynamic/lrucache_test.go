package dynamic

import (
	"testing"
	"time"
)

func TestLRUCache(t *testing.T) {
	now := time.Unix(0, 0)
	r := newLRUCache[string, int](2, time.Minute)
	r.now = func() time.Time { return now }
	has := func(key string, want bool) {
		t.Helper()
		if _, ok := r.get(key); ok != want {
			t.Errorf("%s: got %v, want %v", key, ok, want)
		}
	}
	r.set("a", 1)
	r.set("b", 2)
	has("a", true)
	r.set("c", 3) // evicts b, the least recently used
	has("b", false)
	has("a", true)
	has("c", true)
	if got := r.getOrAdd("c", func() int { return 4 }); got != 3 {
		t.Errorf("got %d, want what is there", got)
	}
	r.set("c", 5)
	if got, _ := r.get("c"); got != 5 || r.len() != 2 {
		t.Errorf("got %d of %d", got, r.len())
	}
	now = now.Add(30 * time.Second)
	has("c", true)
	now = now.Add(31 * time.Second)
	has("other", false) // any access removes idle values
	if r.len() != 1 {
		t.Errorf("%d are kept, want only c", r.len())
	}
	r.remove("c")
	r.remove("c")
	if r.len() != 0 || r.order.Len() != 0 {
		t.Errorf("%d are kept", r.len())
	}
}
