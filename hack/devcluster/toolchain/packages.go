package toolchain

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// hostTool is a required file, and the Debian package that contains it.
type hostTool struct{ path, pkg string }

// hostTools are the tools of the machine that the cluster uses. They are paths, not names looked up in PATH: /usr/sbin
// is often missing there.
var hostTools = []hostTool{
	{"/usr/bin/containerd", "containerd"},
	{"/usr/bin/ctr", "containerd"},
	{"/usr/sbin/runc", "runc"},
	{"/usr/lib/cni/bridge", "containernetworking-plugins"},
	{"/usr/sbin/iptables-restore", "iptables"},
	{"/usr/sbin/conntrack", "conntrack"},
	{"/sbin/ip", "iproute2"},
}

// missingPackages returns the packages whose files are absent, each once, in the order of hostTools.
func missingPackages(exists func(path string) bool) []string {
	var missing []string
	for _, tool := range hostTools {
		if !exists(tool.path) && (len(missing) == 0 || missing[len(missing)-1] != tool.pkg) {
			missing = append(missing, tool.pkg)
		}
	}
	return missing
}

// InstallPackages installs missing Debian packages with apt-get. It does nothing if none is missing.
func InstallPackages(ctx context.Context, progress func(format string, args ...any)) error {
	missing := missingPackages(func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	})
	if len(missing) == 0 {
		return nil
	}
	names := strings.Join(missing, " ")
	progress("installing Debian packages: %s", names)
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("this machine has no apt-get; install by hand what brings %s: %w", names, err)
	}
	install := append([]string{"install", "-y", "--no-install-recommends"}, missing...)
	for _, args := range [][]string{{"update"}, install} {
		// Tests beside it may install packages, too (test/debian): apt-get does not wait for another update.
		cmd := exec.CommandContext(ctx, "flock", append([]string{filepath.Join(os.TempDir(), "atoll-apt-get.lock"), "apt-get", "-o", "DPkg::Lock::Timeout=300"}, args...)...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w\n%s", strings.Join(args, " "), err, tail(out, 2000))
		}
	}
	return nil
}

// tail returns the end of a program's output, which contains the error.
func tail(out []byte, limit int) []byte {
	if len(out) > limit {
		return out[len(out)-limit:]
	}
	return out
}
