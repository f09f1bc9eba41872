package options

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/atoll-dev/atoll/internal/kubeconfig"
)

// Web contains the flags of the server for people and programs of tenants.
type Web struct {
	// Address is host and port; empty disables the server.
	Address string
	// CertFile and KeyFile are the files of the serving certificate.
	CertFile, KeyFile string
	// FrontProxyURL is the address of the front proxy; empty means the server of the kubeconfig.
	FrontProxyURL string
	// OIDCIssuerURL and OIDCClientID configure sign-in to the portal; if empty, users enter a token.
	OIDCIssuerURL, OIDCClientID string
	// Console offers the pages of administrators in the portal.
	Console bool
	// ConsoleNamespace is the namespace of the installation in the host cluster, whose objects the console shows; empty for none.
	ConsoleNamespace string
	// ConsoleKubeconfig is the file with the credentials for the host cluster; empty means those of the pod.
	ConsoleKubeconfig string
}

func (w *Web) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&w.Address, "web-address", w.Address, "host and port of the portal (/ui/), the MCP server (/mcp) and the API of workspaces (/clusters/), all with the credentials of their users; off by default")
	flags.StringVar(&w.CertFile, "web-tls-cert-file", w.CertFile, "serving certificate of --web-address; it is read again when it changes. Without it, the server speaks HTTP, on loopback addresses only")
	flags.StringVar(&w.KeyFile, "web-tls-private-key-file", w.KeyFile, "key of --web-tls-cert-file")
	flags.StringVar(&w.FrontProxyURL, "front-proxy-url", w.FrontProxyURL, "address of the front proxy for users of --web-address, such as https://kcp.example.org:6443; by default, the server in --kcp-kubeconfig. Its certificate is verified with the CA there")
	flags.StringVar(&w.OIDCIssuerURL, "oidc-issuer-url", w.OIDCIssuerURL, "OIDC issuer at which users of the portal sign in; by default, they enter a token")
	flags.BoolVar(&w.Console, "web-console", w.Console, "offer the console in the portal: pages about workspaces and shards for administrators, with the rights of their users; off by default")
	flags.StringVar(&w.ConsoleNamespace, "web-console-namespace", w.ConsoleNamespace, "namespace of the installation in the cluster of its operator: the console shows the operator's objects there to users who may list and watch them in the workspace root. By default, it shows none")
	flags.StringVar(&w.ConsoleKubeconfig, "web-console-kubeconfig", w.ConsoleKubeconfig, "kubeconfig that may list and watch the operator's objects in --web-console-namespace, and needs no other right; by default, the service account of the pod is used")
	flags.StringVar(&w.OIDCClientID, "oidc-client-id", w.OIDCClientID, "public client of the portal at --oidc-issuer-url")
}

// complete validates the flags and returns the client configuration of the front proxy, or nil if the server is disabled.
func (w *Web) complete(workspace *rest.Config) (*rest.Config, error) {
	if w.Address == "" {
		for _, other := range []struct{ flag, value string }{
			{"--web-tls-cert-file", w.CertFile}, {"--web-tls-private-key-file", w.KeyFile}, {"--front-proxy-url", w.FrontProxyURL},
			{"--oidc-issuer-url", w.OIDCIssuerURL}, {"--oidc-client-id", w.OIDCClientID},
			{"--web-console-namespace", w.ConsoleNamespace}, {"--web-console-kubeconfig", w.ConsoleKubeconfig},
		} {
			if other.value != "" {
				return nil, fmt.Errorf("%s: is used with --web-address only", other.flag)
			}
		}
		if w.Console {
			return nil, errors.New("--web-console: is used with --web-address only")
		}
		return nil, nil // there is no server
	}
	if err := w.checkServing(); err != nil {
		return nil, err
	}
	if err := w.checkOIDC(); err != nil {
		return nil, err
	}
	return w.frontProxy(workspace)
}

func (w *Web) checkServing() error {
	host, port, err := net.SplitHostPort(w.Address)
	if err != nil {
		return fmt.Errorf("--web-address: got %q, expected host and port such as :8443", w.Address)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("--web-address: got port %q, expected a number", port)
	}
	switch {
	case (w.CertFile == "") != (w.KeyFile == ""):
		return errors.New("--web-tls-cert-file and --web-tls-private-key-file: set both or none")
	case w.CertFile != "":
		if _, err := tls.LoadX509KeyPair(w.CertFile, w.KeyFile); err != nil {
			return fmt.Errorf("--web-tls-cert-file: %w", err)
		}
	case host != "localhost" && !net.ParseIP(host).IsLoopback():
		return fmt.Errorf("--web-address: %q is no loopback address: tokens of users need --web-tls-cert-file and --web-tls-private-key-file", w.Address)
	}
	return nil
}

func (w *Web) checkOIDC() error {
	if (w.OIDCIssuerURL == "") != (w.OIDCClientID == "") {
		return errors.New("--oidc-issuer-url and --oidc-client-id: set both or none")
	}
	issuer, err := url.Parse(w.OIDCIssuerURL)
	if w.OIDCIssuerURL != "" && (err != nil || issuer.Scheme != "https" || issuer.Host == "" || issuer.RawQuery != "" || issuer.Fragment != "") {
		return fmt.Errorf("--oidc-issuer-url: got %q, expected an https URL without query", w.OIDCIssuerURL)
	}
	return nil
}

// frontProxy returns a client configuration with the address of the front proxy and the CA of the kubeconfig.
func (w *Web) frontProxy(workspace *rest.Config) (*rest.Config, error) {
	flag, address := "--front-proxy-url", w.FrontProxyURL
	if address == "" {
		flag = "--kcp-kubeconfig"
		address, _, _ = strings.Cut(workspace.Host, "/clusters/")
	}
	parsed, err := url.Parse(address)
	if err != nil || parsed.Scheme != "https" || parsed.Host == "" || strings.Trim(parsed.Path, "/") != "" || parsed.RawQuery != "" || parsed.User != nil {
		return nil, fmt.Errorf("%s: the front proxy is %q, expected an address such as https://kcp.example.org:6443", flag, address)
	}
	if workspace.Insecure {
		return nil, errors.New("--kcp-kubeconfig: insecure-skip-tls-verify cannot be used with --web-address: tokens of users would be sent to a server that is not verified")
	}
	config := rest.AnonymousClientConfig(workspace)
	config.Host = "https://" + parsed.Host
	return config, nil
}

// host returns the client configuration of the host cluster, or nil if the console shows nothing of it.
func (w *Web) host() (*rest.Config, error) {
	switch {
	case w.ConsoleNamespace == "" && w.ConsoleKubeconfig != "":
		return nil, errors.New("--web-console-kubeconfig: is used with --web-console-namespace only")
	case w.ConsoleNamespace == "":
		return nil, nil // the console shows nothing of it
	case !w.Console:
		return nil, errors.New("--web-console-namespace: is used with --web-console only")
	}
	if problems := validation.IsDNS1123Label(w.ConsoleNamespace); len(problems) > 0 {
		return nil, fmt.Errorf("--web-console-namespace: got %q, expected the name of a namespace: %s", w.ConsoleNamespace, strings.Join(problems, "; "))
	}
	flag, config, err := "--web-console-kubeconfig", (*rest.Config)(nil), error(nil)
	if w.ConsoleKubeconfig == "" {
		flag = "--web-console-namespace"
		config, err = rest.InClusterConfig()
	} else {
		config, err = kubeconfig.Load(w.ConsoleKubeconfig, "")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	if parsed, err := url.Parse(config.Host); err != nil || parsed.Scheme != "https" || parsed.Host == "" {
		return nil, fmt.Errorf("%s: the server is %q, expected an https URL", flag, config.Host)
	}
	if config.Insecure {
		return nil, fmt.Errorf("%s: insecure-skip-tls-verify cannot be used: the credentials would be sent to a server that is not verified", flag)
	}
	return config, nil
}
