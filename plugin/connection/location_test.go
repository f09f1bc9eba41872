package connection

import (
	"errors"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/atoll-dev/atoll/logicalcluster"
)

func TestParseLocation(t *testing.T) {
	for name, tc := range map[string]struct {
		url, base, path string // path "" means foreign
	}{
		"reads a workspace URL":                       {"https://kcp.example:6443/clusters/root:org", "https://kcp.example:6443", "root:org"},
		"drops the path after the workspace":          {"https://h/clusters/root/api/v1?x=y", "https://h", "root"},
		"keeps a prefix in front of the workspace":    {"https://h/services/apiexport/root/x/clusters/abc", "https://h/services/apiexport/root/x", "abc"},
		"tolerates a trailing slash":                  {"https://h/clusters/root/", "https://h", "root"},
		"reads a system cluster":                      {"https://h/clusters/system:admin", "https://h", "system:admin"},
		"a base URL has no workspace":                 {"https://h", "", ""},
		"another Kubernetes cluster has no workspace": {"https://h/k8s/clusters", "", ""},
		"the wildcard is no workspace":                {"https://h/clusters/*", "", ""},
		"an empty workspace is no workspace":          {"https://h/clusters/", "", ""},
		"an invalid name is no workspace":             {"https://h/clusters/UPPER", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseLocation(tc.url)
			if tc.path == "" {
				var notWorkspace *NotWorkspaceURLError
				if !errors.As(err, &notWorkspace) || err.Error() != `current URL "`+tc.url+`" does not point to a workspace` {
					t.Fatalf("got %+v, %v", got, err)
				}
				return
			}
			if err != nil || got.Base != tc.base || got.Path.String() != tc.path {
				t.Fatalf("got %+v, %v", got, err)
			}
			if want := tc.base + "/clusters/root:x"; got.URLFor(logicalcluster.MustParsePath("root:x")) != want {
				t.Fatalf("URLOf gives %q", got.URLFor(logicalcluster.MustParsePath("root:x")))
			}
		})
	}
}

func TestAdminLocation(t *testing.T) {
	for url, base := range map[string]string{
		"https://h:6443/services/admin":                    "https://h:6443",
		"https://h/prefix/services/admin/":                 "https://h/prefix",
		"https://h/services/admin/clusters/root":           "",
		"https://h/services/apiexport/root/x/clusters/abc": "",
		"https://h/clusters/admin":                         "",
		"https://h":                                        "",
	} {
		got, ok := AdminLocation(url)
		if ok != (base != "") || got.Base != base {
			t.Errorf("%s: got %+v, %t", url, got, ok)
		}
		if ok && got.AdminURL() != base+"/services/admin" {
			t.Errorf("%s: got back %s", url, got.AdminURL())
		}
	}
}

func TestTreeRoot(t *testing.T) {
	for path, top := range map[string]string{
		"root:a:b":     "root",
		"abc123:a":     "abc123",
		"user:alice:a": "user:alice",
		"user:alice":   "user:alice",
		"system:admin": "system:admin",
	} {
		if got := TreeRoot(logicalcluster.MustParsePath(path)); got.String() != top {
			t.Errorf("Top(%s) = %s, want %s", path, got, top)
		}
	}
}

func TestWorkspaceFlag(t *testing.T) {
	for name, tc := range map[string]struct {
		flag, want, err string
	}{
		"defaults to the current workspace": {flag: "", want: "root:org"},
		"resolves a relative path":          {flag: "a:b", want: "root:org:a:b"},
		"resolves an absolute path":         {flag: ":root:x", want: "root:x"},
		"resolves dots":                     {flag: "..:.:x", want: "root:x"},
		"refuses to leave the tree":         {flag: "..:..", err: "cannot go above the root workspace"},
		"refuses an invalid path":           {flag: "a::b", err: "invalid workspace path: a::b"},
		"refuses a single colon":            {flag: ":", err: "invalid workspace path: :"},
		"refuses a dot after a colon":       {flag: ":.", err: "invalid workspace path: :."},
	} {
		t.Run(name, func(t *testing.T) {
			flags := NewFlags(genericiooptions.NewTestIOStreamsDiscard())
			set := pflag.NewFlagSet("test", pflag.ContinueOnError)
			flags.Bind(set)
			flags.BindWorkspace(set)
			if err := set.Parse([]string{"-w", tc.flag}); err != nil {
				t.Fatal(err)
			}
			got, err := flags.Workspace(logicalcluster.MustParsePath("root:org"))
			if tc.err != "" {
				if err == nil || err.Error() != tc.err {
					t.Fatalf("got %v, want %q", err, tc.err)
				}
				return
			}
			if err != nil || got.String() != tc.want {
				t.Fatalf("got %s, %v", got, err)
			}
		})
	}
}

func TestBindOmitsUserAndClusterFlags(t *testing.T) {
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	NewFlags(genericiooptions.NewTestIOStreamsDiscard()).Bind(set)
	for _, omitted := range []string{"client-certificate", "client-key", "as", "as-group", "cluster", "request-timeout"} {
		if set.Lookup(omitted) != nil {
			t.Errorf("--%s is there", omitted)
		}
	}
	for _, added := range []string{"kubeconfig", "context", "user", "server", "token", "namespace", "v"} {
		if set.Lookup(added) == nil {
			t.Errorf("--%s is missing", added)
		}
	}
}
