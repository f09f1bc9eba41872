package desired

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

const (
	// DefaultClusterDomain is the DNS domain of a Kubernetes cluster by default.
	DefaultClusterDomain = "cluster.local"
	// ServerPort is the port every server of an installation listens on.
	ServerPort = 6443
	// virtualWorkspacePort is a second port of a shard's Service that existing manifests may refer to.
	virtualWorkspacePort = 6444
)

// CA is one of the certificate authorities of an installation. Its value is the suffix of its Secret's name.
type CA string

// The certificate authorities of an installation. All but the first are signed by the first.
const (
	RootCA           CA = "ca"
	ServerCA         CA = "server-ca"
	ClientCA         CA = "client-ca"
	RequestHeaderCA  CA = "requestheader-client-ca"
	ServiceAccountCA CA = "service-account-ca"
	// ServiceAccountKeys are no authority, but the keys that sign the tokens of service accounts. They are re-keyed as if they were one: each
	// shard has a key of each generation, and the Secret of that name has the one of the root shard.
	ServiceAccountKeys CA = "service-account"
)

// CAName is the name of a CA's Issuer and Certificate.
func CAName(root *operatorv1alpha1.RootShard, ca CA) string { return root.Name + "-" + string(ca) }

// ProvidedCA is the Secret with a root CA that the user provides, or "".
func ProvidedCA(root *operatorv1alpha1.RootShard) string {
	if ref := root.Spec.Certificates.CASecretRef; ref != nil {
		return ref.Name
	}
	return ""
}

// CASecret is the name of the Secret that holds a CA: that of the Certificate, or that of a root CA that the user
// provides.
func CASecret(root *operatorv1alpha1.RootShard, ca CA) string {
	if provided := ProvidedCA(root); ca == RootCA && provided != "" {
		return provided
	}
	return CAName(root, ca)
}

// ClusterDomain is the DNS domain of the cluster the root shard runs in.
func ClusterDomain(root *operatorv1alpha1.RootShard) string {
	return NewRootShard(root).ClusterDomain()
}

// ServiceHost is the full DNS name of a Service.
func ServiceHost(name, namespace, domain string) string {
	return fmt.Sprintf("%s.%s.svc.%s", name, namespace, domain)
}

// RootShardBaseURL is the URL under which other components reach the root shard.
func RootShardBaseURL(root *operatorv1alpha1.RootShard) string { return NewRootShard(root).BaseURL() }

// VirtualWorkspaceURL is the URL that a shard publishes for the virtual workspaces of a server beside it.
func VirtualWorkspaceURL(virtualWorkspace *operatorv1alpha1.VirtualWorkspace) string {
	return httpsURL(virtualWorkspace.Spec.External.Hostname, virtualWorkspace.Spec.External.Port)
}

// ExternalURL is the URL under which clients reach an installation.
func ExternalURL(root *operatorv1alpha1.RootShard) string {
	return httpsURL(root.Spec.External.Hostname, root.Spec.External.Port)
}

// PrivateURL is the URL under which shards reach the front proxy: the private address if there is one.
func PrivateURL(root *operatorv1alpha1.RootShard) string {
	external := root.Spec.External
	if external.PrivateHostname == "" {
		return ExternalURL(root)
	}
	port := external.Port
	if external.PrivatePort != nil {
		port = *external.PrivatePort
	}
	return httpsURL(external.PrivateHostname, port)
}

// InternalProxyURL is the URL of the root shard's internal proxy.
func InternalProxyURL(root *operatorv1alpha1.RootShard) string {
	return NewInternalProxy(root).ServiceURL()
}

// FrontProxyURL is the URL under which clients reach a front proxy.
func FrontProxyURL(front *operatorv1alpha1.FrontProxy, root *operatorv1alpha1.RootShard) string {
	if external := front.Spec.External; external != nil && external.Hostname != "" {
		return httpsURL(external.Hostname, external.Port)
	}
	if host, port := splitHostPort(front.Spec.ExternalHostname); host != "" {
		return httpsURL(host, port)
	}
	return ExternalURL(root)
}

// URLHost is the host of a URL without its port, or "" if the URL is invalid.
func URLHost(raw string) string {
	parsed, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return parsed.Hostname()
}

// TrimPort cuts the port from "host:port".
func TrimPort(hostport string) string {
	host, _ := splitHostPort(hostport)
	return host
}

// splitHostPort splits "host:port"; the default port is ServerPort.
func splitHostPort(hostport string) (string, int32) {
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		return strings.Trim(hostport, "[]"), ServerPort
	}
	number, err := strconv.ParseInt(port, 10, 32)
	if err != nil || number <= 0 {
		return host, ServerPort
	}
	return host, int32(number)
}

func httpsURL(host string, port int32) string {
	return "https://" + net.JoinHostPort(host, strconv.Itoa(int(port)))
}
