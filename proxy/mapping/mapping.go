// Package mapping reads the file that maps paths of the proxy to backends.
package mapping

import (
	"fmt"
	"net/url"
	"os"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/atoll-dev/atoll/proxy/identity"
)

// ShardsPath is the path of the entry of the shards. Its backend is not used: requests are forwarded to the shard of
// their logical cluster.
const ShardsPath = "/clusters/"

// Entry is one entry of the file.
type Entry struct {
	// Path is a prefix of URL paths. It may have wildcards of http.ServeMux; {cluster} is the logical cluster of the
	// request.
	Path string `json:"path"`
	// Backend is the base URL, to which the whole path of a request is appended.
	Backend string `json:"backend"`
	// BackendServerCA, ProxyClientCert and ProxyClientKey are PEM files.
	BackendServerCA string `json:"backend_server_ca"`
	ProxyClientCert string `json:"proxy_client_cert"`
	ProxyClientKey  string `json:"proxy_client_key"`
	// The names of the identity headers; the defaults are those of Kubernetes.
	UserHeader        string `json:"user_header,omitempty"`
	GroupHeader       string `json:"group_header,omitempty"`
	ExtraHeaderPrefix string `json:"extra_header_prefix,omitempty"`
}

// Load reads the file. Errors name the file, the entry and the field.
func Load(file string) ([]Entry, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("mapping file: %w", err)
	}
	entries, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("mapping file %s: %w", file, err)
	}
	return entries, nil
}

// Parse parses and validates the YAML list.
func Parse(data []byte) ([]Entry, error) {
	var entries []Entry
	if err := yaml.UnmarshalStrict(data, &entries); err != nil {
		return nil, err
	}
	if len(entries) == 0 {
		return nil, fmt.Errorf("no entries: expected a YAML list of {path, backend, backend_server_ca, proxy_client_cert, proxy_client_key}")
	}
	seen := map[string]bool{}
	for i := range entries {
		if err := entries[i].validate(); err != nil {
			return nil, fmt.Errorf("entry %d (path %q): %w", i, entries[i].Path, err)
		}
		key := entries[i].Pattern()
		if seen[key] {
			return nil, fmt.Errorf("entry %d (path %q): an entry above has the same path", i, entries[i].Path)
		}
		seen[key] = true
	}
	return entries, nil
}

func (e Entry) validate() error {
	for field, value := range map[string]string{
		"path": e.Path, "backend": e.Backend, "backend_server_ca": e.BackendServerCA,
		"proxy_client_cert": e.ProxyClientCert, "proxy_client_key": e.ProxyClientKey,
	} {
		if value == "" {
			return fmt.Errorf("%s is required", field)
		}
	}
	if !strings.HasPrefix(e.Path, "/") {
		return fmt.Errorf("path: got %q, expected a path that starts with /", e.Path)
	}
	if _, err := e.BackendURL(); err != nil {
		return err
	}
	return nil
}

// Pattern returns the path without trailing slashes; "" matches all paths.
func (e Entry) Pattern() string { return strings.TrimRight(e.Path, "/") }

// IsShards reports whether this is the entry of the shards.
func (e Entry) IsShards() bool { return e.Path == ShardsPath }

// BackendURL returns the parsed backend. It must be https: backends trust the identity headers because of the client
// certificate.
func (e Entry) BackendURL() (*url.URL, error) {
	u, err := url.Parse(e.Backend)
	if err != nil {
		return nil, fmt.Errorf("backend: %w", err)
	}
	if u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("backend: got %q, expected https://<host>[:<port>][/<path>]", e.Backend)
	}
	return u, nil
}

// Headers returns the names of the identity headers.
func (e Entry) Headers() identity.HeaderNames {
	names := identity.DefaultHeaderNames()
	if e.UserHeader != "" {
		names.User = e.UserHeader
	}
	if e.GroupHeader != "" {
		names.Group = e.GroupHeader
	}
	if e.ExtraHeaderPrefix != "" {
		names.ExtraPrefix = e.ExtraHeaderPrefix
	}
	return names
}
