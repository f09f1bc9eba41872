// Package headroom lets a process allocate a fixed amount at least between two garbage collections. Go collects whenever
// a heap has doubled; a shard of few workspaces, whose heap is small, would do so several times a second under load, and
// every collection delays the requests that are served beside it.
//
// It is a matter of processes: a program asks for it, nothing below it does.
package headroom

import (
	"bytes"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
)

// Wanted is what a server may allocate between two collections, in bytes, where that much memory is to be had.
const Wanted = 256 << 20

// doubling is Go's own rule: collect when the heap has grown by as many percent.
const doubling = 100

// Keep makes the garbage collector leave that many bytes, or the heap's own size if that is more, from now on. It does
// nothing if the environment has a rule of its own (GOGC).
//
// A limit on the memory of the process's control group bounds it to a quarter of that: a heap that has room to double
// has more room than that.
func Keep(wanted int64) {
	if os.Getenv("GOGC") != "" {
		return
	}
	k := &keeper{wanted: min(wanted, Limit()/4), percent: doubling}
	afterEachCollection(func() bool {
		k.adjust()
		return true
	})
}

type keeper struct {
	wanted int64
	// percent is the rule in force.
	percent int
}

// afterEachCollection does something soon after every collection, until that returns false: what becomes garbage at once
// is finalized then.
func afterEachCollection(do func() (again bool)) {
	runtime.SetFinalizer(&struct{ do func() bool }{do}, func(*struct{ do func() bool }) {
		if do() {
			afterEachCollection(do)
		}
	})
}

// adjust makes the rule fit the heap.
func (k *keeper) adjust() {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	if live[0].Value.Kind() != metrics.KindUint64 {
		return
	}
	percent := percentFor(k.wanted, live[0].Value.Uint64())
	if difference := math.Abs(float64(percent - k.percent)); difference*10 < float64(k.percent) {
		return // not worth telling
	}
	debug.SetGCPercent(percent)
	k.percent = percent
}

// percentFor returns by how many percent a heap of live bytes may grow. It is bounded so that the first collections of
// a process, when hardly anything lives, leave no more than later ones.
func percentFor(wanted int64, live uint64) int {
	const least = 16 << 20
	return max(doubling, int(100*wanted/int64(max(live, least))))
}

// unlimited is more memory than any machine has.
const unlimited = 1 << 60

// Limit returns how much memory the process's control group may use, in bytes; math.MaxInt64 without a
// limit.
func Limit() int64 {
	for _, file := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		content, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		// The older version of control groups has a limit always: the largest number of pages.
		if bytes, err := strconv.ParseInt(string(bytes.TrimSpace(content)), 10, 64); err == nil && bytes < unlimited {
			return bytes
		}
	}
	return math.MaxInt64
}
