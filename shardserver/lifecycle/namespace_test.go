package lifecycle

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestRemainingSettlePeriod(t *testing.T) {
	for name, test := range map[string]struct {
		age, now, later time.Duration // now is waited at once, later is what the caller is told to wait
	}{
		"deleted recently": {age: 500 * time.Millisecond, later: 1500 * time.Millisecond},
		"deleted long ago": {age: time.Hour, later: 2*time.Second - time.Hour},
		"deleted by a replica whose clock is far ahead":      {age: -10 * time.Minute, now: settlePeriod},
		"deleted by a replica whose clock is slightly ahead": {age: -time.Second, later: 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				if later := remainingSettlePeriod(t.Context(), test.age); later != test.later {
					t.Errorf("it settleDelay for %s more, want %s", later, test.later)
				}
				if now := time.Since(began); now != test.now {
					t.Errorf("it took %s to tell, want %s", now, test.now)
				}
			})
		})
	}
}
