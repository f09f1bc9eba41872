package toolchain

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// hostTool is a file that must exist, and the Debian package that brings it.
type hostTool struct{ path, pkg string }

// hostTools is everything the cluster takes from the machine. Paths, not names looked up in PATH: /usr/sbin is often
// missing there.
var hostTools = []hostTool{
	{"/usr/bin/containerd", "containerd"},
	{"/usr/bin/ctr", "containerd"},
	{"/usr/sbin/runc", "runc"},
	{"/usr/lib/cni/bridge", "containernetworking-plugins"},
	{"/usr/sbin/iptables-restore", "iptables"},
	{"/usr/sbin/conntrack", "conntrack"},
	{"/sbin/ip", "iproute2"},
}

// missingPackages names the packages whose files are absent, each once, in the order of hostTools.
func missingPackages(exists func(path string) bool) []string {
	var missing []string
	for _, tool := range hostTools {
		if !exists(tool.path) && (len(missing) == 0 || missing[len(missing)-1] != tool.pkg) {
			missing = append(missing, tool.pkg)
		}
	}
	return missing
}

// InstallPackages installs the Debian packages that are missing, with apt-get. It does nothing where none is.
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
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w\n%s", strings.Join(args, " "), err, tail(out, 2000))
		}
	}
	return nil
}

// tail is the end of a program's output, where it says why it failed.
func tail(out []byte, limit int) []byte {
	if len(out) > limit {
		return out[len(out)-limit:]
	}
	return out
}
