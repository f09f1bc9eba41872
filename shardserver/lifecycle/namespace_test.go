package lifecycle

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestRemainingSettlePeriod(t *testing.T) {
	for name, test := range map[string]struct {
		age, blocked, remaining time.Duration // now is waited at once, later is what the caller is told to wait
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
					t.Errorf("it settleDelay for %s more, want %s", remaining, test.remaining)
				}
				if blocked := time.Since(start); blocked != test.blocked {
					t.Errorf("it took %s to tell, want %s", blocked, test.blocked)
				}
			})
		})
	}
}
