// Package headroom lets a process allocate a good deal between two garbage collections. Go collects whenever a heap has
// doubled; a shard of few workspaces, whose heap is small, would do so several times a second under load, and every
// collection delays the requests that are served beside it.
//
// How much that is follows the load: who allocates little needs little, and who allocates much is given the memory for as
// long as that lasts.
//
// It is a matter of processes: a program asks for it, nothing below it does.
package headroom

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"time"
)

// Room is what a process may allocate between two collections, in bytes.
type Room struct {
	// Least is what it always may.
	Least int64
	// Most is what it may when that much is needed for a pause between collections that lasts long enough.
	Most int64
}

// Wanted is the room of a server.
var Wanted = Room{Least: 256 << 20, Most: 4 << 30}

// pause is how long the time between two collections should be. A collection delays what runs beside it for about a sixth
// of a second with a heap of 150 MiB: at this distance, one of a hundred requests meets one.
const pause = 16 * time.Second

// doubling is Go's own rule: collect when the heap has grown by as many percent.
const doubling = 100

// Keep makes the garbage collector leave that room, or the heap's own size if that is more, from now on. It does nothing
// if the environment has a rule of its own (GOGC).
//
// A limit on the memory of the process's control group, or else the machine's memory, bounds it to a quarter of that: a
// heap that has room to double has more room than that.
func Keep(wanted Room) {
	if os.Getenv("GOGC") != "" {
		return
	}
	quarter := min(Limit(), machine()) / 4
	wanted = Room{Least: min(wanted.Least, quarter), Most: min(wanted.Most, quarter)}
	k := &keeper{bounds: wanted, now: wanted.Least, percent: doubling, last: measure()}
	afterEachCollection(func() bool {
		k.adjust(measure())
		return true
	})
}

type keeper struct {
	bounds Room
	// now is the room in force, and percent the rule by which it is.
	now     int64
	percent int
	// last is what the last collection left.
	last heap
}

// heap is what is known of it after a collection, in bytes.
type heap struct {
	live, allocated uint64 // allocated is counted from the beginning of the process
	at              time.Time
}

func measure() heap {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(samples)
	return heap{live: samples[0].Value.Uint64(), allocated: samples[1].Value.Uint64(), at: time.Now()}
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

// adjust makes the rule fit the load and the heap.
func (k *keeper) adjust(h heap) {
	k.now = k.bounds.next(k.now, int64(h.allocated-k.last.allocated), h.at.Sub(k.last.at))
	k.last = h
	percent := percentFor(k.now, h.live)
	if difference := math.Abs(float64(percent - k.percent)); difference*10 < float64(k.percent) {
		return // not worth telling
	}
	debug.SetGCPercent(percent)
	k.percent = percent
}

// next returns the room after one in which so much was allocated in that time. It grows step by step, and only when it
// was used: when a process begins it is collected early, and a burst does not need memory for long.
func (r Room) next(now, allocated int64, took time.Duration) int64 {
	needed := int64(float64(allocated) / max(took, time.Millisecond).Seconds() * pause.Seconds())
	if needed > now && allocated < now/2 {
		return now
	}
	return min(max(needed, r.Least), max(2*now, r.Least), r.Most)
}

// percentFor returns by how many percent a heap of live bytes may grow. It is bounded so that the first collections of
// a process, when hardly anything lives, leave no more than later ones.
func percentFor(wanted int64, live uint64) int {
	const least = 16 << 20
	return max(doubling, int(100*wanted/int64(max(live, least))))
}

// machine returns how much memory the machine has, in bytes; math.MaxInt64 where that cannot be told.
func machine() int64 {
	content, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return math.MaxInt64
	}
	var kibibytes int64
	if _, err := fmt.Sscanf(string(content), "MemTotal: %d kB", &kibibytes); err != nil {
		return math.MaxInt64
	}
	return kibibytes << 10
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
