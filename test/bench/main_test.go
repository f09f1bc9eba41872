// Package bench measures the performance that docs promise. Benchmarks run real shards in this process on real etcd
// (without fsync: disks of shared machines are not comparable). They print figures and never fail because of one: only
// deterministic counts are checked, by tests.
//
// Several benchmarks run in one process each: the heap of one would slow down the next. Each figure is printed and
// written to the output file as soon as it is measured, so that an interrupted run keeps its figures.
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
	mu        sync.Mutex
	figures   []Figure
	unwritten bool
)

// processBegun is the start time of this process.
var processBegun = time.Now()

// record prints a figure and stores it.
func record(name string, value float64, unit, against string) {
	mu.Lock()
	defer mu.Unlock()
	f := Figure{Name: name, Value: value, Unit: unit, Against: against}
	figures = append(figures, f)
	fmt.Printf("%-46s %14.2f %-12s %s\n", f.Name, f.Value, f.Unit, f.Against)
	if err := write(figures); err != nil {
		fmt.Fprintf(os.Stderr, "writing the figures: %v\n", err)
		unwritten = true
	}
}

// tell logs to stderr what a benchmark does next, and the time since the start of the process.
func tell(b *testing.B, what string) {
	b.Helper()
	fmt.Fprintf(os.Stderr, "bench: %s, %s after its beginning: %s %s\n", time.Now().Format(time.TimeOnly), time.Since(processBegun).Round(time.Second), b.Name(), what)
}

func TestMain(m *testing.M) {
	if input := os.Getenv(beLoudVariable); input != "" {
		if err := beLoud(input); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if os.Getenv(beBusyVariable) != "" {
		if err := beBusy(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	if names := chosen(); len(names) > 1 {
		os.Exit(runEach(names))
	}
	var err error
	if figures, err = earlier(); err != nil {
		fmt.Fprintf(os.Stderr, "reading the figures so far: %v\n", err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(binaryDirectory)
	if unwritten {
		code = 1
	}
	os.Exit(code)
}

// timed records the duration of a benchmark including its preparations, to show where the time of a run is spent.
func timed(b *testing.B) {
	begun := time.Now()
	tell(b, "begins")
	b.Cleanup(func() { record("time of "+b.Name(), time.Since(begun).Seconds(), "s", "whatever else the machine did") })
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

// process is the resource usage of this process at one moment.
type process struct {
	heapBytes  uint64
	goroutines int
}

// settle runs the garbage collector until the heap stops shrinking, so that figures show live memory.
func settle() process {
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
	return process{heapBytes: stats.HeapAlloc, goroutines: runtime.NumGoroutine()}
}

// processorTime returns the processor time that this process has used: shard and client, not etcd.
func processorTime(b *testing.B) time.Duration {
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
