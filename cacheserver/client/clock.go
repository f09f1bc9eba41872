package client

import (
	"net/http"
	"sync/atomic"
	"time"
)

// clock compares the clock of this process with that of the cache, by what the latest answer says.
type clock struct{ ahead atomic.Int64 }

// ClockAhead returns by how much the clock of this process is ahead of the cache's, to the second and what an answer takes;
// less than 0 if it is behind, 0 before the first answer. Several replicas of a cache may have a clock each.
func (c *Client) ClockAhead() time.Duration { return time.Duration(c.clock.ahead.Load()) }

// compare takes in the answer to a request. What it says of its time may be of any moment in between, and is cut to the
// second: where that explains the difference, there is none.
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
