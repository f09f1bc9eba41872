package client

import (
	"net/http"
	"testing"
	"time"
)

func TestClockSkew(t *testing.T) {
	noon := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		sent, received time.Duration // after noon, when the cache's clock stands at noon
		want           time.Duration
	}{
		"a response within its second":        {0, 500 * time.Millisecond, 0},
		"a slow response":                     {-20 * time.Second, time.Second, 0},
		"the clock of this process is ahead":  {10 * time.Minute, 10*time.Minute + time.Second, 10*time.Minute - time.Second},
		"the clock of this process is behind": {-10 * time.Minute, -10*time.Minute + time.Second, -10*time.Minute + time.Second},
		"the truncated fraction is ignored":   {time.Second, 1200 * time.Millisecond, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := &Client{clock: &clockSkew{}}
			c.clock.observe(http.Header{"Date": {noon.Format(http.TimeFormat)}}, noon.Add(tc.sent), noon.Add(tc.received))
			if got := c.ClockSkew(); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
			c.clock.observe(http.Header{}, noon, noon.Add(time.Hour))
			if got := c.ClockSkew(); got != tc.want {
				t.Errorf("a response without Date: %s", got)
			}
		})
	}
}
