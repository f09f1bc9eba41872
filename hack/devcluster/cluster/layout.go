// Package cluster starts and ends a one-node Kubernetes cluster out of processes on this machine, and knows every file,
// address and name it uses. Nothing of it stays after Down. Building the programs is package toolchain's work.
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

// The fixed names and addresses of the cluster. There is one cluster per machine: its bridge, addresses and iptables
// chains are the machine's. Ports keep away from the usual ones, which belong to what is being developed.
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

	// networkName marks the CNI plugins' cache files and iptables comments as ours.
	networkName = "atoll-devcluster"

	pauseImage   = "docker.io/local/pause:1"
	corednsImage = "docker.io/local/coredns:1"

	// runFolder holds sockets and mounts. It is outside the state folder because a socket's path may have 107 bytes.
	runFolder = "/run/atoll-devcluster"
)

// Layout is where one cluster keeps its files.
type Layout struct {
	State string // absolute; removed as a whole by Down
}

// NewLayout describes the cluster in a state folder, which need not exist yet.
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

// Kubeconfig is the administrator's kubeconfig.
func (l Layout) Kubeconfig() string { return l.path("kubeconfig") }

// Logs is the folder of the processes' output, one file each.
func (l Layout) Logs() string { return l.path("logs") }

func (l Layout) pki(name string) string          { return l.path("pki", name) }
func (l Layout) config(name string) string       { return l.path("config", name) }
func (l Layout) pid(process string) string       { return l.path("run", process+".pid") }
func (l Layout) log(process string) string       { return filepath.Join(l.Logs(), process+".log") }
func (l Layout) containerdSocket() string        { return filepath.Join(runFolder, "containerd.sock") }
func (l Layout) kubeconfigOf(user string) string { return l.config(user + ".kubeconfig") }

// ownerFile says which state folder the machine's one cluster belongs to.
var ownerFile = filepath.Join(runFolder, "owner")

// marker is the file that makes a folder a state folder. Down removes no folder that lacks it.
const marker = ".atoll-devcluster"

// claim makes the machine's one cluster and the state folder ours, or says whose they are.
func (l Layout) claim() error {
	owner, err := os.ReadFile(ownerFile)
	if err == nil && string(owner) != l.State {
		return fmt.Errorf("this machine already runs a development cluster with state folder %s; use it (--state) or end it with `devcluster down --state %s`", owner, owner)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := l.claimFolder(); err != nil {
		return err
	}
	if err := os.MkdirAll(runFolder, 0o711); err != nil {
		return err
	}
	return os.WriteFile(ownerFile, []byte(l.State), 0o644)
}

// claimFolder marks a new or empty folder as a state folder, and refuses one that holds something else.
func (l Layout) claimFolder() error {
	if l.marked() {
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

func (l Layout) marked() bool {
	_, err := os.Stat(l.path(marker))
	return err == nil
}

// owned says whether the machine's cluster is this one.
func (l Layout) owned() bool {
	owner, err := os.ReadFile(ownerFile)
	return err == nil && string(owner) == l.State
}

// Cluster is one development cluster, up or not.
type Cluster struct {
	Layout
	Tools *toolchain.Toolchain
	// Progress is told what is being done, a line at a time.
	Progress func(format string, args ...any)
}
