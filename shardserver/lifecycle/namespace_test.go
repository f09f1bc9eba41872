package lifecycle

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/atoll-dev/atoll/shardserver/fence"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// TestTogetherWaitIsShort: creations that wait for others have been admitted, and are under way for the fence.
func TestTogetherWaitIsShort(t *testing.T) {
	for name, bound := range map[string]time.Duration{"settle period": settlePeriod, "pause of writes": fence.PauseTimeout} {
		if storage.MaxTogetherWait > bound/2 {
			t.Errorf("creations wait for others for up to %s, more than half of the %s of %s", storage.MaxTogetherWait, name, bound)
		}
	}
}

func TestRemainingSettlePeriod(t *testing.T) {
	for name, test := range map[string]struct {
		age, blocked, remaining time.Duration // blocked is the wait within the call, remaining the returned delay
	}{
		"deleted recently": {age: 500 * time.Millisecond, remaining: 1500 * time.Millisecond},
		"deleted long ago": {age: time.Hour, remaining: 2*time.Second - time.Hour},
		"deleted by a replica whose clock is far ahead":      {age: -10 * time.Minute, blocked: settlePeriod},
		"deleted by a replica whose clock is slightly ahead": {age: -time.Second, remaining: 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				if remaining := remainingSettlePeriod(t.Context(), test.age); remaining != test.remaining {
					t.Errorf("remaining period is %s, want %s", remaining, test.remaining)
				}
				if blocked := time.Since(start); blocked != test.blocked {
					t.Errorf("the call took %s, want %s", blocked, test.blocked)
				}
			})
		})
	}
}
