// Package toolchain provides the components of the development cluster: Debian packages, and programs built from the Go
// modules that hack/devcluster pins. Built programs stay in a cache directory outside the checkout. It does not start
// them.
package toolchain

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/atoll-dev/atoll/hack/release/gobuild"
)

// KubernetesVersion is the version that the built programs report; go.mod pins the sources to the same one.
const KubernetesVersion = "v1.37.2"

// program is one executable: a package, built inside a directory (relative to hack/devcluster) that contains its
// go.mod. built is the name that go build gives it.
type program struct{ name, dir, pkg, built string }

var programs = []program{
	{"etcd", ".", "go.etcd.io/etcd/server/v3", "server"},
	{"kube-apiserver", ".", "k8s.io/kubernetes/cmd/kube-apiserver", "kube-apiserver"},
	{"kube-controller-manager", ".", "k8s.io/kubernetes/cmd/kube-controller-manager", "kube-controller-manager"},
	{"kube-scheduler", ".", "k8s.io/kubernetes/cmd/kube-scheduler", "kube-scheduler"},
	{"kubelet", ".", "k8s.io/kubernetes/cmd/kubelet", "kubelet"},
	{"kube-proxy", ".", "k8s.io/kubernetes/cmd/kube-proxy", "kube-proxy"},
	{"kubectl", ".", "k8s.io/kubernetes/cmd/kubectl", "kubectl"},
	{"certmanager", ".", "./certmanager", "certmanager"},
	{"hostpath", ".", "./hostpath", "hostpath"},
	{"pause", ".", "./pause", "pause"},
	{"coredns", "coredns", ".", "coredns"},
}

// sources are the files, as globs below hack/devcluster, that determine the content of the programs.
var sources = []string{"go.mod", "go.sum", "certmanager/*.go", "hostpath/*.go", "pause/*.go", "coredns/*"}

// Toolchain is one version of the programs.
type Toolchain struct {
	moduleDir string // hack/devcluster of the checkout
	binDir    string // cache directory of its programs
}

// New returns the toolchain of the checkout's hack/devcluster; it builds nothing.
func New(module string) (*Toolchain, error) {
	cache, err := cacheDir(os.Getenv)
	if err != nil {
		return nil, err
	}
	key, err := versionKey(module)
	if err != nil {
		return nil, fmt.Errorf("reading the pinned versions in %s: %w", module, err)
	}
	return &Toolchain{moduleDir: module, binDir: filepath.Join(cache, "atoll", "devcluster", key)}, nil
}

// Version identifies the sources of the programs; it changes with every source that could change them.
func (t *Toolchain) Version() string { return filepath.Base(t.binDir) }

// BinDir returns the cache directory of the programs of this version.
func (t *Toolchain) BinDir() string { return t.binDir }

// Binary returns the path of a built program.
func (t *Toolchain) Binary(name string) string { return filepath.Join(t.binDir, name) }

// cacheDir returns $ATOLL_CACHE, or else the user's cache directory.
func cacheDir(getenv func(string) string) (string, error) {
	for _, name := range []string{"ATOLL_CACHE", "XDG_CACHE_HOME"} {
		if dir := getenv(name); dir != "" {
			return filepath.Abs(dir)
		}
	}
	if home := getenv("HOME"); home != "" {
		return filepath.Join(home, ".cache"), nil
	}
	return "", fmt.Errorf("no cache folder: set ATOLL_CACHE, XDG_CACHE_HOME or HOME")
}

// versionKey consists of the Kubernetes release and a digest of everything that could change the result.
func versionKey(module string) (string, error) {
	digest := sha256.New()
	for _, pattern := range sources {
		files, err := filepath.Glob(filepath.Join(module, pattern))
		if err != nil {
			return "", err
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			content, err := os.ReadFile(file)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(digest, "%s %d\n%s", filepath.Base(file), len(content), content)
		}
	}
	return KubernetesVersion + "-" + hex.EncodeToString(digest.Sum(nil))[:12], nil
}

// Build builds the programs that are missing in the cache. Concurrent builds of one version are serialized.
func (t *Toolchain) Build(ctx context.Context, progress func(format string, args ...any)) error {
	if err := os.MkdirAll(t.binDir, 0o755); err != nil {
		return fmt.Errorf("creating the cache folder: %w", err)
	}
	lock, err := os.Create(filepath.Join(t.binDir, ".lock"))
	if err != nil {
		return fmt.Errorf("locking the cache folder: %w", err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("locking the cache folder: %w", err)
	}
	missing := map[string][]program{} // by directory
	var names []string
	for _, p := range programs {
		if _, err := os.Stat(t.Binary(p.name)); err == nil {
			continue
		}
		missing[p.dir] = append(missing[p.dir], p)
		names = append(names, p.name)
	}
	if len(names) == 0 {
		return nil
	}
	progress("building %s from source, once for this version; minutes if Go's cache is empty", strings.Join(names, ", "))
	for _, dir := range slices.Sorted(maps.Keys(missing)) {
		if err := t.build(ctx, dir, missing[dir], progress); err != nil {
			return err
		}
	}
	return nil
}

// build builds programs of one directory by one command, which links some while it compiles others. It builds into a scratch directory
// first, so that the cache contains only complete programs.
func (t *Toolchain) build(ctx context.Context, dir string, missing []program, progress func(format string, args ...any)) error {
	scratch, err := os.MkdirTemp(t.binDir, ".new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	build := gobuild.Build{
		Directory: filepath.Join(t.moduleDir, dir), Output: scratch + string(filepath.Separator),
		Flags: []string{"-ldflags", ldflags()}, Environment: buildFlags,
	}
	for _, p := range missing {
		build.Packages = append(build.Packages, p.pkg)
	}
	if err := build.Run(ctx, func(line string) { progress("%s", line) }); err != nil {
		return err
	}
	for _, p := range missing {
		if err := os.Rename(filepath.Join(scratch, p.built), t.Binary(p.name)); err != nil {
			return err
		}
	}
	return nil
}

// ldflags strips the programs and sets their version, which clients and the kubelet's version checks read.
func ldflags() string {
	const pkg = "k8s.io/component-base/version"
	return strings.Join([]string{
		"-s", "-w",
		"-X", pkg + ".gitVersion=" + KubernetesVersion,
		"-X", pkg + ".gitTreeState=clean",
	}, " ")
}

// buildFlags are those that the whole project uses for builds, so that all share one build cache.
var buildFlags = []string{"CGO_ENABLED=0", "GOFLAGS=-buildvcs=false -trimpath", "GOWORK=off"}

// ModuleDir returns the directory of a dependency's sources, as hack/devcluster pins it, and downloads them if they
// are missing.
func (t *Toolchain) ModuleDir(ctx context.Context, path string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", path)
	cmd.Dir, cmd.Env = t.moduleDir, append(os.Environ(), buildFlags...)
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("finding the sources of module %s: %w\n%s", path, err, tail(out, 1000))
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		return "", fmt.Errorf("finding the sources of module %s: %w", path, err)
	}
	return module.Dir, nil
}
