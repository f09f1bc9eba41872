package bench

import (
	"bufio"
	"cmp"
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

// loadVariable makes this program run as a noisy tenant instead of a benchmark.
const loadVariable = "BENCH_BE_LOUD"

// startSubprocess runs this program in another mode, selected by an environment variable, at the lowest priority. It
// returns when the program has written a line. Calling end closes its input, after which the rest of its output can be
// read.
func startSubprocess(b *testing.B, variable, value string) (output *bufio.Reader, end func(), wait func() error) {
	b.Helper()
	program, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	command := exec.CommandContext(b.Context(), "chrt", "--idle", "0", program)
	command.Env = append(os.Environ(), variable+"="+value)
	command.Stderr = os.Stderr
	stdin, err := command.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := command.Start(); err != nil {
		b.Fatal(err)
	}
	output = bufio.NewReader(stdout)
	if _, err := output.ReadString('\n'); err != nil {
		b.Fatalf("waiting for the start of %s: %v", variable, err)
	}
	return output, func() { _ = stdin.Close() }, command.Wait
}

// startLoad sends requests from many clients until it is stopped. It returns when each client has received a response;
// stop returns how many requests the server has answered and how many it has not since then, per second.
func (t *tenant) startLoad(b *testing.B, profile loadProfile) (stop func() (served, refused float64)) {
	b.Helper()
	a := t.config
	a.Load = profile
	input, err := json.Marshal(a)
	if err != nil {
		b.Fatal(err)
	}
	output, end, wait := startSubprocess(b, loadVariable, string(input))
	return func() (served, refused float64) {
		end()
		if _, err := fmt.Fscan(output, &served, &refused); err != nil {
			b.Fatalf("reading the number of served requests: %v", err)
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
	_, end, wait := startSubprocess(b, busyLoopVariable, "yes")
	return func() {
		end()
		if err := wait(); err != nil {
			b.Fatal(err)
		}
	}
}

// busyLoopVariable makes this program run busy loops.
const busyLoopVariable = "BENCH_BE_BUSY"

// runBusyLoop is the subprocess of keepBusy.
func runBusyLoop() error {
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

// runLoad is the subprocess of startLoad: it sends requests until its input ends.
func runLoad(input string) error {
	var a tenantConfig
	if err := json.Unmarshal([]byte(input), &a); err != nil {
		return err
	}
	runtime.GOMAXPROCS(1)
	t := tenantFromConfig(a)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var running, connected sync.WaitGroup
	var served, refused atomic.Int64
	send := func() {
		name := "read"
		if a.Load.Method == http.MethodPost {
			name = fmt.Sprintf("y%d-%d", time.Now().UnixNano(), t.serial.Add(1))
		}
		code, err := t.do(ctx, a.Load.Method, name)
		switch {
		case ctx.Err() != nil:
		case err == nil && (code == http.StatusOK || code == http.StatusCreated):
			served.Add(1)
		default:
			refused.Add(1)
		}
	}
	for range cmp.Or(a.Load.Workers, noisyWorkers) {
		connected.Add(1)
		running.Go(func() {
			send()
			connected.Done()
			for ctx.Err() == nil {
				send()
			}
		})
	}
	connected.Wait()
	begun, before, refusedBefore := time.Now(), served.Load(), refused.Load()
	fmt.Println("each client has a response")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	cancel()
	running.Wait()
	took := time.Since(begun).Seconds()
	fmt.Println(float64(served.Load()-before)/took, float64(refused.Load()-refusedBefore)/took)
	return nil
}
