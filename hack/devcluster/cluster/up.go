package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/atoll-dev/atoll/hack/devcluster/toolchain"
)

// versionFile contains the version of the programs that the cluster was started with.
const versionFile = "version"

// Up starts the parts of the cluster that do not run, and returns when a pod can be deployed: the node is ready, DNS
// answers and certificates can be issued.
func (c *Cluster) Up(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return errors.New("a development cluster needs root: it makes a bridge, cgroups and mounts (or set KUBECONFIG to a cluster you have)")
	}
	unlock, err := acquireLock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.removeAbandoned(ctx); err != nil {
		return err
	}
	if err := c.claim(); err != nil {
		return err
	}
	// Needed even if the cluster is up, because the user needs its kubectl.
	if err := c.ensureTools(ctx); err != nil {
		return err
	}
	if err := c.CheckHealth(ctx); err == nil {
		c.Progress("the cluster is already up")
		if started, err := os.ReadFile(c.path(versionFile)); err == nil && string(started) != c.Tools.Version() {
			c.Progress("it runs programs of another version (%s, now %s): down and up would renew them", started, c.Tools.Version())
		}
		return nil
	}
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"writing certificates and configuration", c.writeFiles},
		{"making the network", c.ensureNetwork},
		{"starting etcd and containerd", c.startStorageAndRuntime},
		{"starting the API server", c.startAPIServer},
		{"starting controllers, scheduler, proxy and kubelet", c.startNode},
		{"installing DNS and cert-manager", c.installAddons},
		{"waiting for the node", c.waitForNode},
		{"waiting for DNS", func(ctx context.Context) error { return c.waitFor(ctx, time.Minute, "", checkDNS) }},
	} {
		c.Progress("%s", step.what)
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	c.Progress("the cluster is up")
	return nil
}

func (c *Cluster) ensureTools(ctx context.Context) error {
	if err := toolchain.InstallPackages(ctx, c.Progress); err != nil {
		return err
	}
	return c.Tools.Build(ctx, c.Progress)
}

func (c *Cluster) writeFiles(context.Context) error {
	// The directory ignores itself in git: the .gitignore of the checkout cannot list every --state.
	if err := os.WriteFile(c.path(".gitignore"), []byte("*\n"), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(c.path(versionFile), []byte(c.Tools.Version()), 0o644); err != nil {
		return err
	}
	if err := c.ensurePKI(time.Now()); err != nil {
		return err
	}
	return c.writeConfig()
}

func (c *Cluster) startStorageAndRuntime(ctx context.Context) error {
	if err := c.startAll("etcd", "containerd"); err != nil {
		return err
	}
	if err := c.waitFor(ctx, 30*time.Second, "containerd", func(ctx context.Context) error {
		_, err := c.ctr(ctx, "version")
		return err
	}); err != nil {
		return err
	}
	return c.ensureSystemImages(ctx)
}

func (c *Cluster) startAPIServer(ctx context.Context) error {
	if err := c.startAll("kube-apiserver"); err != nil {
		return err
	}
	return c.waitFor(ctx, 90*time.Second, "kube-apiserver", c.checkAPIServer)
}

func (c *Cluster) startNode(context.Context) error {
	if err := os.MkdirAll(c.path("volumes"), 0o755); err != nil {
		return err
	}
	return c.startAll("kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "hostpath")
}

// installAddons applies the manifests of every cluster, and starts cert-manager once the API server serves its kinds.
func (c *Cluster) installAddons(ctx context.Context) error {
	sources, err := c.Tools.ModuleDir(ctx, "github.com/cert-manager/cert-manager")
	if err != nil {
		return err
	}
	args := []string{"apply", "--server-side", "--force-conflicts", "-f", c.config("system.yaml")}
	var names []string
	for _, name := range []string{"certificaterequests", "certificates", "clusterissuers", "issuers"} {
		args = append(args, "-f", filepath.Join(sources, "deploy", "crds", "cert-manager.io_"+name+".yaml"))
		names = append(names, "crd/"+name+".cert-manager.io")
	}
	if _, err := c.kubectl(ctx, args...); err != nil {
		return err
	}
	// kubectl wait fails for a definition that has no conditions yet, so it is retried.
	if err := c.waitFor(ctx, time.Minute, "kube-apiserver", func(ctx context.Context) error {
		_, err := c.kubectl(ctx, append([]string{"wait", "--for=condition=Established", "--timeout=10s"}, names...)...)
		return err
	}); err != nil {
		return err
	}
	return c.startAll("certmanager")
}

func (c *Cluster) waitForNode(ctx context.Context) error {
	return c.waitFor(ctx, 90*time.Second, "kubelet", func(ctx context.Context) error {
		_, err := c.kubectl(ctx, "wait", "--for=condition=Ready", "node/"+NodeName, "--timeout=10s")
		return err
	})
}

// startAll starts those of the named processes that do not run.
func (c *Cluster) startAll(names ...string) error {
	all := c.processes()
	for _, name := range names {
		if _, err := c.start(all[name]); err != nil {
			return err
		}
	}
	return nil
}

// waitFor polls until a condition holds. If the process it depends on ends, it fails immediately, with the end of its log.
func (c *Cluster) waitFor(ctx context.Context, timeout time.Duration, process string, ready func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := poll(ctx, timeout, 200*time.Millisecond, func() error {
		if process != "" {
			if _, alive := c.runningPID(process); !alive {
				cancel(fmt.Errorf("%s ended: %s", process, c.logTail(process)))
			}
		}
		return ready(ctx)
	})
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

// CheckHealth returns nil if the whole cluster works: every process runs, and the API server and DNS respond.
func (c *Cluster) CheckHealth(ctx context.Context) error {
	if !c.isOwner() {
		return fmt.Errorf("no cluster with state folder %s", c.State)
	}
	for _, name := range startOrder {
		if _, alive := c.runningPID(name); !alive {
			return fmt.Errorf("%s does not run", name)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := c.checkAPIServer(ctx); err != nil {
		return err
	}
	return checkDNS(ctx)
}

// ListProcesses returns the pid of each of the cluster's processes, in the order of their start; 0 for one that does
// not run.
func (c *Cluster) ListProcesses() (names []string, pids []int) {
	for _, name := range startOrder {
		pid, alive := c.runningPID(name)
		if !alive {
			pid = 0
		}
		names, pids = append(names, name), append(pids, pid)
	}
	return names, pids
}

// checkAPIServer requests /readyz, which anonymous users may.
func (c *Cluster) checkAPIServer(ctx context.Context) error {
	ca, err := os.ReadFile(c.pki("ca.crt"))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://%s:%d/readyz", nodeIP, apiServerPort), nil)
	if err != nil {
		return err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("the API server does not answer: %w", err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(io.LimitReader(resp.Body, 2000)); resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the API server is not ready: %s: %s", resp.Status, body)
	}
	return nil
}

// checkDNS queries the cluster's DNS Service, from the machine, for the API server's own name.
func checkDNS(ctx context.Context) error {
	resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(dnsIP, "53"))
	}}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	addrs, err := resolver.LookupHost(ctx, "kubernetes.default.svc.cluster.local.")
	if err != nil {
		return fmt.Errorf("the cluster's DNS does not answer: %w", err)
	}
	if len(addrs) != 1 || addrs[0] != kubernetesIP {
		return fmt.Errorf("the cluster's DNS resolves kubernetes.default to %v, not %s", addrs, kubernetesIP)
	}
	return nil
}

func (c *Cluster) kubectl(ctx context.Context, args ...string) (string, error) {
	return runCommand(ctx, "", c.Tools.Binary("kubectl"), append([]string{"--kubeconfig=" + c.Kubeconfig()}, args...)...)
}

func (c *Cluster) ctr(ctx context.Context, args ...string) (string, error) {
	return runCommand(ctx, "", "/usr/bin/ctr", append([]string{"--address", c.containerdSocket(), "--namespace", "k8s.io"}, args...)...)
}
