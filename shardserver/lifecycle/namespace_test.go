package lifecycle

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestHowLongANamespaceSettles(t *testing.T) {
	for name, test := range map[string]struct {
		age, now, later time.Duration // now is waited at once, later is what the caller is told to wait
	}{
		"deleted a moment ago":               {age: 500 * time.Millisecond, later: 1500 * time.Millisecond},
		"long deleted":                       {age: time.Hour, later: 2*time.Second - time.Hour},
		"deleted where the clock is ahead":   {age: -10 * time.Minute, now: settling},
		"deleted where it is ahead a little": {age: -time.Second, later: 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				if later := settled(t.Context(), test.age); later != test.later {
					t.Errorf("it settles for %s more, want %s", later, test.later)
				}
				if now := time.Since(began); now != test.now {
					t.Errorf("it took %s to tell, want %s", now, test.now)
				}
			})
		})
	}
}
