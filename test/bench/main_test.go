// Package bench measures the performance that docs promise. Benchmarks run real shards in this process on real etcd
// (without fsync: disks of shared machines are not comparable). They print figures and never fail because of one: only
// tests check deterministic counts.
//
// Several benchmarks run in one process each: the heap of one would slow down the next. A benchmark prints each figure and
// writes it to the output file as soon as it has measured it, so that an interrupted run keeps its figures.
package bench

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"sort"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Figure is one measured number.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// Against names the tool of the measurement, or what the number is compared to.
	Against string `json:"against"`
}

var (
	mu          sync.Mutex
	figures     []Figure
	writeFailed bool
)

// startTime is the start time of this process.
var startTime = time.Now()

// record prints a figure and stores it.
func record(name string, value float64, unit, against string) {
	mu.Lock()
	defer mu.Unlock()
	f := Figure{Name: name, Value: value, Unit: unit, Against: against}
	figures = append(figures, f)
	fmt.Printf("%-46s %14.2f %-12s %s\n", f.Name, f.Value, f.Unit, f.Against)
	if err := writeFigures(figures); err != nil {
		fmt.Fprintf(os.Stderr, "writing the figures: %v\n", err)
		writeFailed = true
	}
}

// logProgress logs to stderr what a benchmark does next, and the time since the start of the process.
func logProgress(b *testing.B, what string) {
	b.Helper()
	fmt.Fprintf(os.Stderr, "bench: %s, %s after its start: %s %s\n", time.Now().Format(time.TimeOnly), time.Since(startTime).Round(time.Second), b.Name(), what)
}

func TestMain(m *testing.M) {
	if input := os.Getenv(loadVariable); input != "" {
		if err := runLoad(input); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if os.Getenv(busyLoopVariable) != "" {
		if err := runBusyLoop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	if names := selectedBenchmarks(); len(names) > 1 {
		os.Exit(runSeparately(names))
	}
	var err error
	if figures, err = loadFigures(); err != nil {
		fmt.Fprintf(os.Stderr, "reading the figures so far: %v\n", err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(binaryDirectory)
	if writeFailed {
		code = 1
	}
	os.Exit(code)
}

// recordDuration records the duration of a benchmark including its preparations, to show where the time of a run is
// spent.
func recordDuration(b *testing.B) {
	begun := time.Now()
	logProgress(b, "begins")
	b.Cleanup(func() {
		record("time of "+b.Name(), time.Since(begun).Seconds(), "s", "depends on the load of the machine")
	})
}

// outputFile returns bench.json in the root of the repository, or the file named by BENCH_OUTPUT.
func outputFile() string {
	if file := os.Getenv("BENCH_OUTPUT"); file != "" {
		return file
	}
	return "../../bench.json"
}

// scaled returns n times BENCH_SCALE (for example 0.1), for short trial runs.
func scaled(n int) int {
	scale, err := strconv.ParseFloat(os.Getenv("BENCH_SCALE"), 64)
	if err != nil {
		return n
	}
	return max(10, int(float64(n)*scale))
}

// processUsage is the resource usage of this process at one moment.
type processUsage struct {
	heapBytes  uint64
	goroutines int
}

// measureProcess runs the garbage collector until the heap stops shrinking, so that figures show live memory.
func measureProcess() processUsage {
	var stats runtime.MemStats
	last := ^uint64(0)
	for range 10 {
		runtime.GC()
		runtime.ReadMemStats(&stats)
		if stats.HeapAlloc+stats.HeapAlloc/100 >= last {
			break
		}
		last = stats.HeapAlloc
	}
	return processUsage{heapBytes: stats.HeapAlloc, goroutines: runtime.NumGoroutine()}
}

// cpuTime returns the processor time that this process has used: shard and client, not etcd.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// quantile returns the q-th quantile of durations.
func quantile(durations []time.Duration, q float64) time.Duration {
	sorted := append([]time.Duration(nil), durations...)
	sort.Slice(sorted, func(i, j int) bool { return sorted[i] < sorted[j] })
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
