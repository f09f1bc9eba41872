// Package debian provides tests with programs of Debian packages that they cannot build: it installs missing packages.
package debian

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// installTimeout is how long an installation may take.
const installTimeout = 10 * time.Minute

// Program returns the path of a program, and installs packages if it is missing. If that is impossible, it skips the test, except in CI.
func Program(t testing.TB, name string, packages ...string) string {
	t.Helper()
	path, err := ensure(t, name, packages)
	if err == nil {
		return path
	}
	if os.Getenv("CI") == "" {
		t.Skipf("this test needs %s: %v", name, err)
	}
	t.Fatalf("this test needs %s: %v", name, err)
	return ""
}

func ensure(t testing.TB, name string, packages []string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil || os.Getuid() != 0 {
		return "", errors.New("install " + strings.Join(packages, " ") + " of Debian; only root can do that here, with apt-get")
	}
	t.Logf("installing %s", strings.Join(packages, " "))
	ctx, cancel := context.WithTimeout(context.Background(), installTimeout)
	defer cancel()
	for _, args := range [][]string{{"update"}, append([]string{"install", "--yes", "--no-install-recommends"}, packages...)} {
		// Tests of other packages, and the development cluster, may install packages at the same time: apt-get does not wait for another
		// update. Services do not have to start.
		cmd := exec.CommandContext(ctx, "flock", append([]string{filepath.Join(os.TempDir(), "atoll-apt-get.lock"), "apt-get", "-q", "-o", "DPkg::Lock::Timeout=300"}, args...)...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("apt-get %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	return exec.LookPath(name)
}
