package client

import (
	"net/http"
	"sync/atomic"
	"time"
)

// clock estimates the difference between the clocks of this process and the cache from the last response.
type clock struct{ ahead atomic.Int64 }

// ClockAhead returns how far the clock of this process is ahead of the cache's, in whole seconds and at least the
// uncertainty of a response; negative if it is behind, 0 before the first response. Replicas of a cache may differ.
func (c *Client) ClockAhead() time.Duration { return time.Duration(c.clock.ahead.Load()) }

// compare evaluates a response. Its Date is some moment between sent and received, truncated to the second: a
// difference within that counts as none.
func (c *clock) compare(answer http.Header, sent, received time.Time) {
	begin, err := http.ParseTime(answer.Get("Date"))
	if err != nil {
		return
	}
	var ahead time.Duration
	switch end := begin.Add(time.Second); {
	case sent.After(end):
		ahead = sent.Sub(end)
	case received.Before(begin):
		ahead = received.Sub(begin)
	}
	c.ahead.Store(int64(ahead.Round(time.Second)))
}
