package backend

import (
	"io"
	"sync"
	"sync/atomic"
	"testing"
)

// body is one whose Read hands over what comes, until then it waits; closing it does not end that.
type body chan int

func (b body) Read([]byte) (int, error) { return <-b, nil }
func (b body) Close() error             { return nil }

func TestWhatIsReadOfABodyWhileItIsClosedIsCountedOnce(t *testing.T) {
	var counted atomic.Int64
	from := make(body)
	counting := &countingBody{ReadCloser: from, count: func(n int64) { counted.Add(n) }}
	var reader sync.WaitGroup
	reader.Go(func() {
		for range 2 {
			_, _ = io.ReadAtLeast(counting, make([]byte, 10), 1)
		}
	})
	from <- 3
	if err := counting.Close(); err != nil {
		t.Fatal(err)
	}
	from <- 4
	reader.Wait()
	if got := counted.Load(); got != 7 {
		t.Errorf("%d bytes were counted, want 7", got)
	}
}
