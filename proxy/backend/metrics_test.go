package backend

import (
	"io"
	"sync"
	"sync/atomic"
	"testing"
)

// chunkedBody returns the sizes that are sent to it as reads, and blocks in between. Close does not unblock it.
type chunkedBody chan int

func (b chunkedBody) Read([]byte) (int, error) { return <-b, nil }
func (b chunkedBody) Close() error             { return nil }

// counter implements metrics.CounterMetric.
type counter struct{ atomic.Int64 }

func (c *counter) Inc()          { c.Int64.Add(1) }
func (c *counter) Add(n float64) { c.Int64.Add(int64(n)) }

func TestCountingBodyCountsReadsDuringCloseOnce(t *testing.T) {
	var counted counter
	source := make(chunkedBody)
	counting := newCountingBody(source, &counted)
	var reader sync.WaitGroup
	reader.Go(func() {
		for range 2 {
			_, _ = io.ReadAtLeast(counting, make([]byte, 10), 1)
		}
	})
	source <- 3
	if err := counting.Close(); err != nil {
		t.Fatal(err)
	}
	source <- 4
	reader.Wait()
	if got := counted.Load(); got != 7 {
		t.Errorf("%d bytes were counted, want 7", got)
	}
}
