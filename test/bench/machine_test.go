package bench

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"
)

// recordGaps records the fraction of a second in which no thread of this process is scheduled while all processors are
// in demand: on a shared machine the host takes processors away for some milliseconds at a time. No request that meets
// such a gap can be faster, and 99th percentiles under load include it.
func recordGaps(b *testing.B) {
	b.Helper()
	const howLong, short = 5 * time.Second, time.Millisecond
	var mu sync.Mutex
	var lost, longest time.Duration
	var spinning sync.WaitGroup
	processors := runtime.GOMAXPROCS(0)
	for range processors {
		spinning.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var all, most time.Duration
			last := time.Now()
			for end := last.Add(howLong); last.Before(end); {
				now := time.Now()
				if gap := now.Sub(last); gap > short {
					all, most = all+gap, max(most, gap)
				}
				last = now
			}
			mu.Lock()
			defer mu.Unlock()
			lost, longest = lost+all, max(longest, most)
		})
	}
	spinning.Wait()
	record("scheduling gaps of the machine", 100*lost.Seconds()/howLong.Seconds()/float64(processors), "%",
		fmt.Sprintf("of the time of %d busy threads, in gaps of more than %v; the longest took %v", processors, short, longest.Round(100*time.Microsecond)))
}
