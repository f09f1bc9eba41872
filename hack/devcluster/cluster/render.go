package cluster

import (
	"bytes"
	"embed"
	"encoding/base64"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

//go:embed templates
var templateFiles embed.FS

var templates = template.Must(template.New("").Option("missingkey=error").ParseFS(templateFiles, "templates/*.tmpl"))

// settings are the variables of the templates.
type settings struct {
	State, Run, ContainerdSocket, Snapshotter string
	NodeName, NodeIP, Bridge, NetworkName     string
	PodCIDR, DNSIP                            string
	PauseImage, CoreDNSImage                  string
	APIServerPort, KubeletPort, KubeletHealth int
	ProxyHealth, ProxyMetrics                 int
	Nameservers                               []string
}

func (l Layout) settings(snapshotter string, nameservers []string) settings {
	return settings{
		State: l.State, Run: runDir, ContainerdSocket: l.containerdSocket(), Snapshotter: snapshotter,
		NodeName: NodeName, NodeIP: nodeIP, Bridge: bridge, NetworkName: networkName,
		PodCIDR: podCIDR, DNSIP: dnsIP,
		PauseImage: pauseImage, CoreDNSImage: corednsImage,
		APIServerPort: apiServerPort, KubeletPort: kubeletPort, KubeletHealth: kubeletHealth,
		ProxyHealth: proxyHealth, ProxyMetrics: proxyMetrics,
		Nameservers: nameservers,
	}
}

// configFiles maps the templates to their paths below the config directory.
var configFiles = map[string]string{
	"containerd.toml.tmpl": "containerd.toml",
	"cni.conflist.tmpl":    "cni/10-atoll.conflist",
	"kubelet.yaml.tmpl":    "kubelet.yaml",
	"kube-proxy.yaml.tmpl": "kube-proxy.yaml",
	"resolv.conf.tmpl":     "resolv.conf",
	"system.yaml.tmpl":     "system.yaml",
}

func render(name string, data any) ([]byte, error) {
	var out bytes.Buffer
	if err := templates.ExecuteTemplate(&out, name, data); err != nil {
		return nil, fmt.Errorf("rendering %s: %w", name, err)
	}
	return out.Bytes(), nil
}

// writeConfig writes every configuration file and kubeconfig.
func (l Layout) writeConfig() error {
	data := l.settings(selectSnapshotter(l.State), listNameservers(os.ReadFile))
	for name, file := range configFiles {
		content, err := render(name, data)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(l.config(file)), 0o755); err != nil {
			return err
		}
		if err := writeIfChanged(l.config(file), content, 0o644); err != nil {
			return err
		}
	}
	for _, user := range kubeconfigUsers {
		path := l.userKubeconfig(user)
		if user == "admin" {
			path = l.Kubeconfig()
		}
		if err := l.writeKubeconfig(path, user); err != nil {
			return fmt.Errorf("kubeconfig of %s: %w", user, err)
		}
	}
	return nil
}

func (l Layout) writeKubeconfig(path, user string) error {
	data := map[string]any{"User": user, "NodeIP": nodeIP, "APIServerPort": apiServerPort}
	for field, file := range map[string]string{"CA": "ca.crt", "Cert": user + ".crt", "Key": user + ".key"} {
		content, err := os.ReadFile(l.pki(file))
		if err != nil {
			return err
		}
		data[field] = base64.StdEncoding.EncodeToString(content)
	}
	content, err := render("kubeconfig.tmpl", data)
	if err != nil {
		return err
	}
	return writeIfChanged(path, content, 0o600)
}

// writeIfChanged writes a file only if its content changes: kube-proxy exits when its configuration is written.
func writeIfChanged(path string, content []byte, mode os.FileMode) error {
	if current, err := os.ReadFile(path); err == nil && bytes.Equal(current, content) {
		return nil
	}
	return os.WriteFile(path, content, mode)
}

// listNameservers returns the machine's name servers that a pod can reach: one on loopback is reachable from the machine only. If a local
// resolver is configured, systemd's file contains its upstream servers.
func listNameservers(read func(path string) ([]byte, error)) []string {
	for _, path := range []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"} {
		content, err := read(path)
		if err != nil {
			continue
		}
		var servers []string
		for line := range strings.Lines(string(content)) {
			fields := strings.Fields(line)
			if len(fields) < 2 || fields[0] != "nameserver" {
				continue
			}
			if ip, err := netip.ParseAddr(fields[1]); err == nil && ip.Is4() && !ip.IsLoopback() {
				servers = append(servers, ip.String())
			}
		}
		if len(servers) > 0 {
			return servers[:min(len(servers), 3)] // the limit of resolvers
		}
	}
	return nil
}
