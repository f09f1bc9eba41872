package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// beLoudVariable makes this program run as a loud tenant instead of a benchmark.
const beLoudVariable = "BENCH_BE_LOUD"

// aside runs this program in another mode, selected by an environment variable, at the lowest priority. It returns when
// the program has written a line. Calling end closes its input, after which the rest of its output can be read.
func aside(b *testing.B, variable, value string) (output *bufio.Reader, end func(), wait func() error) {
	b.Helper()
	program, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	other := exec.CommandContext(b.Context(), "chrt", "--idle", "0", program)
	other.Env = append(os.Environ(), variable+"="+value)
	other.Stderr = os.Stderr
	stdin, err := other.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := other.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := other.Start(); err != nil {
		b.Fatal(err)
	}
	output = bufio.NewReader(stdout)
	if _, err := output.ReadString('\n'); err != nil {
		b.Fatalf("waiting until %s has begun: %v", variable, err)
	}
	return output, func() { _ = stdin.Close() }, other.Wait
}

// shout sends requests from many clients until it is stopped. It returns when each client has received a response; stop
// returns how many requests were served and how many were not since then, per second.
func (t *tenant) shout(b *testing.B, by pressure) (stop func() (served, refused float64)) {
	b.Helper()
	a := t.access
	a.Pressure = by
	input, err := json.Marshal(a)
	if err != nil {
		b.Fatal(err)
	}
	output, end, wait := aside(b, beLoudVariable, string(input))
	return func() (served, refused float64) {
		end()
		if _, err := fmt.Fscan(output, &served, &refused); err != nil {
			b.Fatalf("reading what was served: %v", err)
		}
		if err := wait(); err != nil {
			b.Fatal(err)
		}
		return served, refused
	}
}

// keepBusy occupies the idle time of all processors until it is stopped: they do not enter idle states, and a host
// schedules them as those of a busy machine.
func keepBusy(b *testing.B) (stop func()) {
	b.Helper()
	_, end, wait := aside(b, beBusyVariable, "yes")
	return func() {
		end()
		if err := wait(); err != nil {
			b.Fatal(err)
		}
	}
}

// beBusyVariable makes this program run busy loops.
const beBusyVariable = "BENCH_BE_BUSY"

// beBusy is the program of keepBusy.
func beBusy() error {
	var ended atomic.Bool
	var spinning sync.WaitGroup
	for range runtime.NumCPU() {
		spinning.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for !ended.Load() {
			}
		})
	}
	runtime.GOMAXPROCS(runtime.NumCPU() + 1) // one for the goroutine that waits for the end of the input
	fmt.Println("busy")
	_, err := io.Copy(io.Discard, os.Stdin)
	ended.Store(true)
	spinning.Wait()
	return err
}

// beLoud is the program of shout: it sends requests until its input ends.
func beLoud(input string) error {
	var a access
	if err := json.Unmarshal([]byte(input), &a); err != nil {
		return err
	}
	runtime.GOMAXPROCS(1)
	t := tenantOf(a)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var running, answered sync.WaitGroup
	var served, refused atomic.Int64
	send := func() {
		name := "read"
		if a.Pressure.Method == http.MethodPost {
			name = fmt.Sprintf("y%d-%d", time.Now().UnixNano(), t.serial.Add(1))
		}
		code, err := t.do(ctx, a.Pressure.Method, name)
		switch {
		case ctx.Err() != nil:
		case err == nil && (code == http.StatusOK || code == http.StatusCreated):
			served.Add(1)
		default:
			refused.Add(1)
		}
	}
	for range loudWorkers {
		answered.Add(1)
		running.Go(func() {
			send()
			answered.Done()
			for ctx.Err() == nil {
				send()
			}
		})
	}
	answered.Wait()
	begun, before, not := time.Now(), served.Load(), refused.Load()
	fmt.Println("each client has an answer")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	cancel()
	running.Wait()
	took := time.Since(begun).Seconds()
	fmt.Println(float64(served.Load()-before)/took, float64(refused.Load()-not)/took)
	return nil
}
