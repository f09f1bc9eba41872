package client

import (
	"net/http"
	"sync/atomic"
	"time"
)

// clockSkew estimates the difference between the clocks of this process and the cache from the last response.
type clockSkew struct{ skew atomic.Int64 }

// ClockSkew returns how far the clock of this process is ahead of the cache's, in whole seconds and at least the
// uncertainty of a response; negative if it is behind, 0 before the first response. Replicas of a cache may differ.
func (c *Client) ClockSkew() time.Duration { return time.Duration(c.clock.skew.Load()) }

// observe evaluates a response. Its Date is some moment between sent and received, truncated to the second: a
// difference within that counts as none.
func (c *clockSkew) observe(header http.Header, sent, received time.Time) {
	begin, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		return
	}
	var skew time.Duration
	switch end := begin.Add(time.Second); {
	case sent.After(end):
		skew = sent.Sub(end)
	case received.Before(begin):
		skew = received.Sub(begin)
	}
	c.skew.Store(int64(skew.Round(time.Second)))
}
