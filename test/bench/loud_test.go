package bench

import (
	"bytes"
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

// shout sends requests from many clients, in a process of its own with a low priority, until it is stopped. That returns how many were
// served and how many refused, by the second.
func (t *tenant) shout(b *testing.B, method string) (stop func() (served, refused float64)) {
	b.Helper()
	program, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	a := t.access
	a.Method = method
	input, err := json.Marshal(a)
	if err != nil {
		b.Fatal(err)
	}
	loud := exec.CommandContext(b.Context(), "nice", "-n", "19", program)
	loud.Env = append(os.Environ(), beLoudVariable+"="+string(input))
	var output bytes.Buffer
	loud.Stdout, loud.Stderr = &output, os.Stderr
	stdin, err := loud.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := loud.Start(); err != nil {
		b.Fatal(err)
	}
	return func() (served, refused float64) {
		_ = stdin.Close()
		if err := loud.Wait(); err != nil {
			b.Fatal(err)
		}
		if _, err := fmt.Sscan(output.String(), &served, &refused); err != nil {
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
	var running sync.WaitGroup
	var served, refused atomic.Int64
	begun := time.Now()
	for range loudWorkers {
		running.Go(func() {
			for ctx.Err() == nil {
				name := "read"
				if a.Method == http.MethodPost {
					name = fmt.Sprintf("y%d-%d", time.Now().UnixNano(), t.serial.Add(1))
				}
				code, err := t.do(ctx, a.Method, name)
				switch {
				case ctx.Err() != nil:
				case err == nil && (code == http.StatusOK || code == http.StatusCreated):
					served.Add(1)
				default:
					refused.Add(1)
				}
			}
		})
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	cancel()
	running.Wait()
	took := time.Since(begun).Seconds()
	fmt.Println(float64(served.Load())/took, float64(refused.Load())/took)
	return nil
}
