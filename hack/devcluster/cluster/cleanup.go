package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// overlayMagic is the file system type of overlayfs, on which another overlay cannot be stacked.
const overlayMagic = 0x794c7630

// selectSnapshotter selects containerd's snapshotter: overlayfs if the file system of the state directory supports it.
func selectSnapshotter(dir string) string {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err == nil && fs.Type != overlayMagic {
		return "overlayfs"
	}
	return "native"
}

// listMountsBelow returns the mount points at and below a directory, deepest first, from the content of
// /proc/self/mountinfo.
func listMountsBelow(mountinfo, dir string) []string {
	var mounts []string
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		point := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(fields[4])
		if point == dir || strings.HasPrefix(point, dir+"/") {
			mounts = append(mounts, point)
		}
	}
	slices.SortFunc(mounts, func(a, b string) int { return len(b) - len(a) })
	return mounts
}

// unmountBelow detaches every mount at and below a directory.
func unmountBelow(dir string) error {
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var errs []error
	for _, point := range listMountsBelow(string(info), dir) {
		// A missing mount point is hidden below a later mount and is detached with it.
		err := syscall.Unmount(point, syscall.MNT_DETACH)
		if err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOENT) {
			errs = append(errs, fmt.Errorf("unmounting %s: %w", point, err))
		}
	}
	return errors.Join(errs...)
}

// removeCgroups removes the kubelet's cgroups from every hierarchy, deepest first. Removing a cgroup that still
// contains a process is an error.
func removeCgroups() error {
	roots, err := filepath.Glob("/sys/fs/cgroup/*/kubepods")
	if err != nil {
		return err
	}
	var errs []error
	for _, root := range append(roots, "/sys/fs/cgroup/kubepods") {
		var dirs []string
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				dirs = append(dirs, path)
			}
			return nil // removed in the meantime
		})
		errs = append(errs, err)
		for _, dir := range slices.Backward(dirs) {
			if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, syscall.ENOENT) {
				errs = append(errs, fmt.Errorf("removing cgroup %s: %w", dir, err))
			}
		}
	}
	return errors.Join(errs...)
}

// sharedFile is a kind of file that programs write outside the state directory, independent of their configuration.
type sharedFile struct {
	pattern string
	isOwned func(path string) bool
}

func (l Layout) sharedFiles() []sharedFile {
	return []sharedFile{
		// The kubelet links every container's log here.
		{"/var/log/containers/*.log", func(path string) bool {
			target, err := os.Readlink(path)
			return err == nil && strings.HasPrefix(target, l.State+"/")
		}},
		// The CNI library keeps one result for each network interface; those of this cluster name a network namespace
		// in its run directory.
		{"/var/lib/cni/results/*", containsText(runDir + "/")},
		// The kubelet's device socket has a fixed path; a socket without a listener is left over.
		{"/var/lib/kubelet/device-plugins/kubelet.sock", func(path string) bool {
			conn, err := net.Dial("unix", path)
			if err == nil {
				conn.Close()
			}
			return errors.Is(err, syscall.ECONNREFUSED)
		}},
	}
}

// containsText returns a predicate that reports whether a file contains a text.
func containsText(text string) func(path string) bool {
	return func(path string) bool {
		content, err := os.ReadFile(path)
		return err == nil && strings.Contains(string(content), text)
	}
}

// listShimSockets returns the sockets of the cluster's shims, which containerd creates in a directory that all
// containers share. The bundle of each shim, in the run directory, contains its address: bundles must be read before
// they are removed.
func listShimSockets() ([]string, error) {
	files, err := filepath.Glob(filepath.Join(runDir, "containerd", "io.containerd.runtime.v2.task", "*", "*", "address"))
	if err != nil {
		return nil, err
	}
	var sockets []string
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if path, ok := strings.CutPrefix(strings.TrimSpace(string(content)), "unix://"); ok && strings.HasPrefix(path, "/run/containerd/s/") {
			sockets = append(sockets, path)
		}
	}
	return sockets, nil
}

// sharedDirs are created by the cluster's programs and may be used by others; they are removed if they are empty.
var sharedDirs = []string{
	"/var/log/containers", "/var/lib/cni/results", "/var/lib/cni", "/var/lib/kubelet/device-plugins", "/var/lib/kubelet",
	"/run/containerd/s", "/run/containerd",
}

func (l Layout) removeSharedFiles() error {
	var errs []error
	sockets, err := listShimSockets()
	errs = append(errs, err)
	for _, socket := range sockets {
		if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	for _, s := range l.sharedFiles() {
		paths, err := filepath.Glob(s.pattern)
		errs = append(errs, err)
		for _, path := range paths {
			if s.isOwned(path) {
				errs = append(errs, os.Remove(path))
			}
		}
	}
	for _, dir := range sharedDirs {
		if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, syscall.ENOENT) &&
			!errors.Is(err, syscall.ENOTEMPTY) && !errors.Is(err, syscall.EBUSY) {
			errs = append(errs, fmt.Errorf("removing %s: %w", dir, err))
		}
	}
	return errors.Join(errs...)
}
