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

// beLoudVariable makes a run of this program a loud tenant instead of a benchmark.
const beLoudVariable = "BENCH_BE_LOUD"

// shout sends requests from many clients, in a process of its own that runs when no other wants to, until it is stopped.
// It returns when each client has had an answer; stop returns how many were served since then, and how many were not, by
// the second.
func (t *tenant) shout(b *testing.B, by pressure) (stop func() (served, refused float64)) {
	b.Helper()
	program, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	a := t.access
	a.Pressure = by
	input, err := json.Marshal(a)
	if err != nil {
		b.Fatal(err)
	}
	loud := exec.CommandContext(b.Context(), "chrt", "--idle", "0", program)
	loud.Env = append(os.Environ(), beLoudVariable+"="+string(input))
	loud.Stderr = os.Stderr
	stdin, err := loud.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := loud.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := loud.Start(); err != nil {
		b.Fatal(err)
	}
	output := bufio.NewReader(stdout)
	if _, err := output.ReadString('\n'); err != nil {
		b.Fatalf("waiting until every client has an answer: %v", err)
	}
	return func() (served, refused float64) {
		_ = stdin.Close()
		if _, err := fmt.Fscan(output, &served, &refused); err != nil {
			b.Fatalf("reading what was served: %v", err)
		}
		if err := loud.Wait(); err != nil {
			b.Fatal(err)
		}
		return served, refused
	}
}

// beLoud is the program of shout: it is loud until its input ends.
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
