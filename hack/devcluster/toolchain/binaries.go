// Package toolchain brings what the development cluster is made of to this machine: Debian packages, and programs built
// from the Go modules that hack/devcluster pins. What it built stays in a cache folder outside the checkout. How the
// programs are started is not its business.
package toolchain

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// KubernetesVersion is the release that the built programs say they are; go.mod pins the sources to the same one.
const KubernetesVersion = "v1.36.3"

// program is one executable: a package, built inside a folder (relative to hack/devcluster) that holds its go.mod.
type program struct{ name, folder, pkg string }

var programs = []program{
	{"etcd", ".", "go.etcd.io/etcd/server/v3"},
	{"kube-apiserver", ".", "k8s.io/kubernetes/cmd/kube-apiserver"},
	{"kube-controller-manager", ".", "k8s.io/kubernetes/cmd/kube-controller-manager"},
	{"kube-scheduler", ".", "k8s.io/kubernetes/cmd/kube-scheduler"},
	{"kubelet", ".", "k8s.io/kubernetes/cmd/kubelet"},
	{"kube-proxy", ".", "k8s.io/kubernetes/cmd/kube-proxy"},
	{"kubectl", ".", "k8s.io/kubernetes/cmd/kubectl"},
	{"certmanager", ".", "./certmanager"},
	{"hostpath", ".", "./hostpath"},
	{"pause", ".", "./pause"},
	{"coredns", "coredns", "."},
}

// sources are the files, as globs below hack/devcluster, that decide what the programs are.
var sources = []string{"go.mod", "go.sum", "certmanager/*.go", "hostpath/*.go", "pause/*.go", "coredns/*"}

// Toolchain is one version of the programs.
type Toolchain struct {
	module string // hack/devcluster of the checkout
	folder string // where its programs are cached
}

// At describes the programs that the checkout's hack/devcluster asks for; nothing is built yet.
func At(module string) (*Toolchain, error) {
	cache, err := cacheFolder(os.Getenv)
	if err != nil {
		return nil, err
	}
	key, err := versionKey(module)
	if err != nil {
		return nil, fmt.Errorf("reading the pinned versions in %s: %w", module, err)
	}
	return &Toolchain{module: module, folder: filepath.Join(cache, "atoll", "devcluster", key)}, nil
}

// Version names what the programs are built from; it changes with every source that could change them.
func (t *Toolchain) Version() string { return filepath.Base(t.folder) }

// Folder is where the programs of this version are cached.
func (t *Toolchain) Folder() string { return t.folder }

// Binary is the path of a built program.
func (t *Toolchain) Binary(name string) string { return filepath.Join(t.folder, name) }

// cacheFolder is $ATOLL_CACHE, else the user's cache folder.
func cacheFolder(env func(string) string) (string, error) {
	for _, name := range []string{"ATOLL_CACHE", "XDG_CACHE_HOME"} {
		if dir := env(name); dir != "" {
			return filepath.Abs(dir)
		}
	}
	if home := env("HOME"); home != "" {
		return filepath.Join(home, ".cache"), nil
	}
	return "", fmt.Errorf("no cache folder: set ATOLL_CACHE, XDG_CACHE_HOME or HOME")
}

// versionKey names what is built by the Kubernetes release and a digest of everything that could change the result.
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

// Build builds the programs that the cache does not hold. Two builders of one version wait for each other.
func (t *Toolchain) Build(ctx context.Context, progress func(format string, args ...any)) error {
	if err := os.MkdirAll(t.folder, 0o755); err != nil {
		return fmt.Errorf("creating the cache folder: %w", err)
	}
	lock, err := os.Create(filepath.Join(t.folder, ".lock"))
	if err != nil {
		return fmt.Errorf("locking the cache folder: %w", err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("locking the cache folder: %w", err)
	}
	for i, p := range programs {
		if _, err := os.Stat(t.Binary(p.name)); err == nil {
			continue
		}
		progress("building %s (%d of %d; the first build of all takes minutes)", p.name, i+1, len(programs))
		if err := t.build(ctx, p); err != nil {
			return fmt.Errorf("building %s: %w", p.name, err)
		}
	}
	return nil
}

// build links to a temporary name first: a program in the cache is always whole.
func (t *Toolchain) build(ctx context.Context, p program) error {
	out := t.Binary("." + p.name + ".new")
	cmd := exec.CommandContext(ctx, "go", "build", "-p", "2", "-ldflags", ldflags(), "-o", out, p.pkg)
	cmd.Dir = filepath.Join(t.module, p.folder)
	cmd.Env = buildEnv(os.Environ())
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s in %s: %w\n%s", p.pkg, cmd.Dir, err, tail(output, 4000))
	}
	return os.Rename(out, t.Binary(p.name))
}

// ldflags strips the programs and makes them say the release they are: clients and the kubelet's version checks read it.
func ldflags() string {
	const pkg = "k8s.io/component-base/version"
	return strings.Join([]string{
		"-s", "-w",
		"-X", pkg + ".gitVersion=" + KubernetesVersion,
		"-X", pkg + ".gitTreeState=clean",
	}, " ")
}

// buildEnv sets the flags that the whole project builds with, so that one build cache serves all.
func buildEnv(env []string) []string {
	return append(env, "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false -trimpath", "GOWORK=off")
}

// ModuleFolder is the folder of a dependency's sources, as hack/devcluster pins it; they are downloaded where missing.
func (t *Toolchain) ModuleFolder(ctx context.Context, path string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", path)
	cmd.Dir, cmd.Env = t.module, buildEnv(os.Environ())
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
