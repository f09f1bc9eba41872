// Package cluster starts and stops a one-node Kubernetes cluster of processes on this machine, and defines every file, address and name
// that it uses. Down removes all of them. Package toolchain builds the programs.
package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/atoll-dev/atoll/hack/devcluster/toolchain"
)

// The fixed names and addresses of the cluster. A machine has at most one cluster, because bridge, addresses and iptables chains belong
// to the machine. Ports differ from the usual ones, which the software under development uses.
const (
	NodeName = "atoll-dev"

	bridge       = "atoll0"
	podCIDR      = "10.86.0.0/24"
	nodeIP       = "10.86.0.1" // the bridge's own address: the node, as pods see it
	serviceCIDR  = "10.87.0.0/24"
	kubernetesIP = "10.87.0.1"
	dnsIP        = "10.87.0.10"

	apiServerPort = 20443 // on nodeIP
	kubeletPort   = 20250 // on nodeIP
	etcdPort      = 20379 // on loopback, as are the rest
	etcdPeerPort  = 20380
	kubeletHealth = 20248
	proxyHealth   = 20256
	proxyMetrics  = 20249

	// networkName marks the CNI plugins' cache files and iptables comments of the cluster.
	networkName = "atoll-devcluster"

	pauseImage   = "docker.io/local/pause:1"
	corednsImage = "docker.io/local/coredns:1"

	// runDir contains sockets and mounts. It is outside the state directory because the path of a socket is limited
	// to 107 bytes.
	runDir = "/run/atoll-devcluster"
)

// Layout defines the paths of one cluster.
type Layout struct {
	State string // absolute; removed as a whole by Down
}

// NewLayout returns the layout for a state directory, which need not exist yet.
func NewLayout(state string) (Layout, error) {
	abs, err := filepath.Abs(state)
	if err != nil {
		return Layout{}, fmt.Errorf("state folder %q: %w", state, err)
	}
	const longest = 107 - len("/kubelet/device-plugins/kubelet.sock")
	if len(abs) > longest {
		return Layout{}, fmt.Errorf("state folder %s: the path is longer than %d bytes, the kubelet's sockets would not fit", abs, longest)
	}
	if strings.ContainsAny(abs, " \"'\n") {
		return Layout{}, fmt.Errorf("state folder %q: the path has spaces or quotes", abs)
	}
	return Layout{State: abs}, nil
}

func (l Layout) path(parts ...string) string {
	return filepath.Join(append([]string{l.State}, parts...)...)
}

// Kubeconfig returns the path of the administrator's kubeconfig.
func (l Layout) Kubeconfig() string { return l.path("kubeconfig") }

// Logs returns the directory of the processes' output, one file each.
func (l Layout) Logs() string { return l.path("logs") }

func (l Layout) pki(name string) string            { return l.path("pki", name) }
func (l Layout) config(name string) string         { return l.path("config", name) }
func (l Layout) pid(process string) string         { return l.path("run", process+".pid") }
func (l Layout) log(process string) string         { return filepath.Join(l.Logs(), process+".log") }
func (l Layout) containerdSocket() string          { return filepath.Join(runDir, "containerd.sock") }
func (l Layout) userKubeconfig(user string) string { return l.config(user + ".kubeconfig") }

// ownerFile contains the state directory of the machine's one cluster.
var ownerFile = filepath.Join(runDir, "owner")

// marker is the file that marks a state directory. Down removes no directory without it.
const marker = ".atoll-devcluster"

// claim makes this cluster the owner of the machine and of the state directory, or returns an error that names the owner.
func (l Layout) claim() error {
	owner, err := os.ReadFile(ownerFile)
	if err == nil && string(owner) != l.State {
		return fmt.Errorf("this machine already runs a development cluster with state folder %s; use it (--state) or end it with `devcluster down --state %s`", owner, owner)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := l.claimStateDir(); err != nil {
		return err
	}
	if err := os.MkdirAll(runDir, 0o711); err != nil {
		return err
	}
	return os.WriteFile(ownerFile, []byte(l.State), 0o644)
}

// claimStateDir marks a new or empty directory as a state directory, and refuses one with other content.
func (l Layout) claimStateDir() error {
	if l.hasMarker() {
		return nil
	}
	entries, err := os.ReadDir(l.State)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(entries) > 0 {
		return fmt.Errorf("state folder %s holds files that are not a development cluster's; name a new folder", l.State)
	}
	if err := os.MkdirAll(l.State, 0o755); err != nil {
		return err
	}
	return os.WriteFile(l.path(marker), nil, 0o644)
}

func (l Layout) hasMarker() bool {
	_, err := os.Stat(l.path(marker))
	return err == nil
}

// isOwner reports whether the machine's cluster is this one.
func (l Layout) isOwner() bool {
	owner, err := os.ReadFile(ownerFile)
	return err == nil && string(owner) == l.State
}

// Cluster is one development cluster, up or not.
type Cluster struct {
	Layout
	Tools *toolchain.Toolchain
	// Progress is called with a line for each step.
	Progress func(format string, args ...any)
}
