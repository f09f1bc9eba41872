package virtual_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/virtual"
)

func TestPathResolver(t *testing.T) {
	for name, tc := range map[string]struct {
		owners int
		path   string
		want   string // owner|cluster|path, or "" if the path is invalid
	}{
		"an initializer and a name":        {1, "root:universal/clusters/abc/api/v1/namespaces", "root:universal|abc|/api/v1/namespaces"},
		"the wildcard":                     {1, "root:universal/clusters/*/apis", "root:universal|*|/apis"},
		"a logical cluster without a path": {1, "x/clusters/abc", "x|abc|/"},
		"a logical cluster and a slash":    {1, "x/clusters/abc/", "x|abc|/"},
		"two owners":                       {2, "abc/widgets/clusters/def/api", "abc/widgets|def|/api"},
		"the rest is not parsed":           {1, "x/clusters/abc/clusters/root/api", "x|abc|/clusters/root/api"},
		"a workspace path":                 {1, "x/clusters/root:org/api", ""},
		"a system name":                    {1, "x/clusters/system:admin/api", "x|system:admin|/api"},
		"no logical cluster":               {1, "x", ""},
		"another segment than clusters":    {1, "x/namespaces/abc/api", ""},
		"an empty name":                    {1, "x/clusters//api", ""},
		"dots":                             {1, "x/clusters/../api", ""},
		"one owner segment is missing":     {2, "x/clusters/abc/api", ""},
		"nothing":                          {1, "", ""},
		"upper case":                       {1, "x/clusters/ABC/api", ""},
		"the wildcard in a path":           {1, "x/clusters/*:a/api", ""},
	} {
		t.Run(name, func(t *testing.T) {
			request, ok := virtual.NewPathResolver(tc.owners)(tc.path)
			got := ""
			if ok {
				for i, owner := range request.Owner {
					if i > 0 {
						got += "/"
					}
					got += owner
				}
				got += "|" + request.Cluster.String() + "|" + request.Path
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// authorizerRecorder records the authorizers that were called.
type authorizerRecorder struct{ names []string }

func (a *authorizerRecorder) newAuthorizer(name string) authorizer.UnconditionalAuthorizer {
	return authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		a.names = append(a.names, name)
		return authorizer.DecisionAllow, "", nil
	})
}

func TestChainAuthorizer(t *testing.T) {
	masters := &user.DefaultInfo{Name: "m", Groups: []string{user.SystemPrivilegedGroup}}
	tenant := &user.DefaultInfo{Name: "t", Groups: []string{user.AllAuthenticated}}
	for name, tc := range map[string]struct {
		path     string
		who      user.Info
		verb     string
		want     authorizer.Decision
		delegate string
	}{
		"another path: authorizer of the shard":                       {"/api/v1", tenant, "get", authorizer.DecisionAllow, "shard"},
		"a virtual workspace: its authorizer":                         {"/services/a/x/clusters/abc/api", tenant, "get", authorizer.DecisionAllow, "a"},
		"no virtual workspace: no authorizer":                         {"/services/b/x/clusters/abc/api", tenant, "get", authorizer.DecisionDeny, ""},
		"an unresolved URL: no authorizer":                            {"/services/a/x", tenant, "get", authorizer.DecisionDeny, ""},
		"masters: no authorizer":                                      {"/services/b", masters, "get", authorizer.DecisionAllow, ""},
		"impersonation: no authorizer":                                {"/services/a/x/clusters/abc/api", tenant, "impersonate", authorizer.DecisionDeny, ""},
		"constrained impersonation: no authorizer":                    {"/services/a/x/clusters/abc/api", tenant, "impersonate-on:user-info:get", authorizer.DecisionDeny, ""},
		"the prefix below a logical cluster: authorizer of the shard": {"/clusters/abc/services/a/x/clusters/abc/api", tenant, "get", authorizer.DecisionAllow, "shard"},
	} {
		t.Run(name, func(t *testing.T) {
			recorder := &authorizerRecorder{}
			registry := virtual.NewRegistry()
			if err := registry.Register(&virtual.Workspace{Name: "a", Resolve: virtual.NewPathResolver(1), Authorizer: recorder.newAuthorizer("a")}); err != nil {
				t.Fatal(err)
			}
			chain := registry.Authorizer(recorder.newAuthorizer("shard"))
			handler := registry.WithRequest(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				got, _, _ := chain.Authorize(req.Context(), authorizer.AttributesRecord{User: tc.who, Verb: tc.verb})
				if got != tc.want {
					t.Errorf("decision %v, want %v", got, tc.want)
				}
			}))
			req := httptest.NewRequest(http.MethodGet, tc.path, nil)
			if target, err := logicalcluster.FromURLPath(tc.path); err == nil && !target.Path.Empty() {
				cluster, _ := target.Path.Name()
				req = req.WithContext(logicalcluster.With(req.Context(), cluster))
				req.URL.Path = target.Rest
			}
			handler.ServeHTTP(httptest.NewRecorder(), req)
			got := ""
			for _, name := range recorder.names {
				got += name
			}
			if got != tc.delegate {
				t.Errorf("called %q, want %q", got, tc.delegate)
			}
		})
	}
}

func TestInClusterAsRemovesCallerHeaders(t *testing.T) {
	req := httptest.NewRequest(http.MethodGet, "/services/a/x/clusters/abc/api", nil)
	req.Header.Set("Authorization", "Bearer x")
	req.Header.Set("Impersonate-User", "root")
	req.Header.Set("Impersonate-Extra-Scopes", "x")
	req.Header.Set("Accept", "application/json")
	registry := virtual.NewRegistry()
	if err := registry.Register(&virtual.Workspace{Name: "a", Resolve: virtual.NewPathResolver(1)}); err != nil {
		t.Fatal(err)
	}
	registry.WithRequest(http.HandlerFunc(func(_ http.ResponseWriter, received *http.Request) { req = received })).ServeHTTP(httptest.NewRecorder(), req)
	if _, inVirtualWorkspace := virtual.From(req.Context()); !inVirtualWorkspace {
		t.Fatal("the request does not go to the virtual workspace")
	}
	cloned := virtual.InClusterAs(req, &user.DefaultInfo{Name: "u"}, nil)
	if _, inVirtualWorkspace := virtual.From(cloned.Context()); inVirtualWorkspace {
		t.Error("the request still goes to the virtual workspace")
	}
	if len(cloned.Header) != 1 || cloned.Header.Get("Accept") == "" {
		t.Errorf("headers %v", cloned.Header)
	}
	recorder := &authorizerRecorder{}
	if _, _, err := virtual.NewRegistry().Authorizer(recorder.newAuthorizer("shard")).Authorize(cloned.Context(), authorizer.AttributesRecord{User: &user.DefaultInfo{}}); err != nil || len(recorder.names) != 1 {
		t.Errorf("called %v, %v", recorder.names, err)
	}
}

func TestRegisterDuplicate(t *testing.T) {
	registry := virtual.NewRegistry()
	if err := registry.Register(&virtual.Workspace{Name: "a"}, &virtual.Workspace{Name: "a"}); err == nil {
		t.Error("no error")
	}
}
