package lifecycle_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

const clusters = "/apis/core.kcp.io/v1alpha1/logicalclusters"

// env is a shard with a workspace whose types want to prepare and to clean up others.
type env struct {
	*testing.T
	shard    *shardtesting.Shard
	masters  client.Client
	provider string // logical cluster of the types
	users    map[string]*rest.Config
}

func newEnv(t *testing.T) *env {
	shard := shardtesting.Start(t)
	s := &env{T: t, shard: shard, masters: shard.Client(t, shard.Masters(t)), users: map[string]*rest.Config{"masters": shard.Masters(t)}}
	s.provider = shard.NewWorkspace(t, "root", "provider").Spec.Cluster
	for _, name := range []string{"permitted", "stranger", "neighbour"} {
		config := rest.CopyConfig(shard.Masters(t))
		config.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: []string{"system:authenticated"}}
		s.users[name] = config
	}
	in := shardtesting.In(t.Context(), s.provider)
	s.create(in, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "lifecycle"}, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"initialize", "terminate"}, APIGroups: []string{"tenancy.kcp.io"}, Resources: []string{"workspacetypes"}},
		{Verbs: []string{"access"}, NonResourceURLs: []string{"/"}},
	}})
	s.create(in, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "neighbour"}, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"get", "list"}, APIGroups: []string{"*"}, Resources: []string{"*"}},
		{Verbs: []string{"access"}, NonResourceURLs: []string{"/"}},
	}})
	for role, name := range map[string]string{"lifecycle": "permitted", "neighbour": "neighbour"} {
		s.create(in, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}, Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}}})
	}
	rules := []rbacv1.PolicyRule{{Verbs: []string{"get", "list", "patch"}, APIGroups: []string{""}, Resources: []string{"configmaps", "namespaces"}}}
	for _, workspaceType := range []*tenancyv1alpha1.WorkspaceType{
		{ObjectMeta: metav1.ObjectMeta{Name: "prep"}, Spec: tenancyv1alpha1.WorkspaceTypeSpec{Initializer: true, Extend: tenancyv1alpha1.WorkspaceTypeExtension{With: []tenancyv1alpha1.WorkspaceTypeReference{{Name: "universal", Path: "root"}}}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: tenancyv1alpha1.WorkspaceTypeSpec{Initializer: true}},
		{ObjectMeta: metav1.ObjectMeta{Name: "both"}, Spec: tenancyv1alpha1.WorkspaceTypeSpec{Initializer: true, Extend: tenancyv1alpha1.WorkspaceTypeExtension{With: []tenancyv1alpha1.WorkspaceTypeReference{{Name: "prep", Path: s.provider}}}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "ruled"}, Spec: tenancyv1alpha1.WorkspaceTypeSpec{Initializer: true, InitializerPermissions: rules}},
		{ObjectMeta: metav1.ObjectMeta{Name: "ending"}, Spec: tenancyv1alpha1.WorkspaceTypeSpec{Terminator: true, TerminatorPermissions: rules}},
	} {
		s.create(in, workspaceType)
	}
	return s
}

func (s *env) create(ctx context.Context, obj client.Object) {
	s.Helper()
	if err := s.masters.Create(ctx, obj); err != nil {
		s.Fatal(err)
	}
}

// workspace makes a workspace of a type of the provider in root, created by alice, and waits until it has a phase.
func (s *env) workspace(name, workspaceType, phase string) string {
	s.Helper()
	root := shardtesting.In(s.Context(), "root")
	workspace := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
		tenancyv1alpha1.ExperimentalWorkspaceOwnerAnnotationKey: `{"username":"alice","groups":["system:authenticated","system:masters"]}`,
	}}, Spec: tenancyv1alpha1.WorkspaceSpec{Type: &tenancyv1alpha1.WorkspaceTypeReference{Path: s.provider, Name: tenancyv1alpha1.WorkspaceTypeName(workspaceType)}}}
	if workspaceType == "universal" {
		workspace.Spec.Type.Path = "root"
	}
	s.create(root, workspace)
	shardtesting.Eventually(s.T, name+" is "+phase, func(ctx context.Context) error {
		if err := s.masters.Get(root, client.ObjectKeyFromObject(workspace), workspace); err != nil {
			return err
		}
		// What initializers the server itself has are done by then.
		if string(workspace.Status.Phase) != phase || strings.Contains(fmt.Sprint(workspace.Status.Initializers), "system:") || strings.Contains(fmt.Sprint(workspace.Status.Initializers), "root:") {
			return fmt.Errorf("status %+v", workspace.Status)
		}
		// The Workspace may be ahead of its logical cluster by a moment.
		cluster := &corev1alpha1.LogicalCluster{}
		err := s.masters.Get(shardtesting.In(ctx, workspace.Spec.Cluster), client.ObjectKey{Name: "cluster"}, cluster)
		if err == nil && string(cluster.Status.Phase) != phase {
			err = fmt.Errorf("logical cluster in phase %s", cluster.Status.Phase)
		}
		return err
	})
	return workspace.Spec.Cluster
}

func (s *env) initializing(workspaceType, cluster, path string) string {
	return "/services/initializingworkspaces/" + s.provider + ":" + workspaceType + "/clusters/" + cluster + path
}

func (s *env) terminating(workspaceType, cluster, path string) string {
	return "/services/terminatingworkspaces/" + s.provider + ":" + workspaceType + "/clusters/" + cluster + path
}

// do sends one request and returns status and body.
func (s *env) do(who, method, path, body string, headers ...string) (int, string) {
	s.Helper()
	config := s.users[who]
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		s.Fatal(err)
	}
	req, err := http.NewRequestWithContext(s.Context(), method, config.Host+path, bytes.NewBufferString(body))
	if err != nil {
		s.Fatal(err)
	}
	req.Header.Set("Accept", "application/json")
	switch {
	case method == http.MethodPatch:
		req.Header.Set("Content-Type", "application/merge-patch+json")
	case body != "":
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := httpClient.Do(req)
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		s.Fatal(err)
	}
	return resp.StatusCode, string(content)
}

func (s *env) want(code int, who, method, path, body string, headers ...string) string {
	s.Helper()
	got, content := s.do(who, method, path, body, headers...)
	if got != code {
		s.Errorf("%s %s as %s: %d, want %d: %s", method, path, who, got, code, content)
	}
	return content
}

// listed returns the logical clusters of a list.
func listed(t *testing.T, content string) map[string]bool {
	t.Helper()
	var list corev1alpha1.LogicalClusterList
	if err := json.Unmarshal([]byte(content), &list); err != nil {
		t.Fatalf("%v: %s", err, content)
	}
	names := map[string]bool{}
	for i := range list.Items {
		names[list.Items[i].Annotations["kcp.io/cluster"]] = true
	}
	return names
}

// without returns a merge patch that sets the remaining initializers.
func withInitializers(names ...string) string {
	raw, _ := json.Marshal(map[string]any{"status": map[string]any{"initializers": append([]string{}, names...)}})
	return string(raw)
}

func TestVirtualWorkspaces(t *testing.T) {
	s := newEnv(t)
	waiting := s.workspace("waiting", "prep", "Initializing")
	foreign := s.workspace("foreign", "other", "Initializing")
	none := s.workspace("none", "universal", "Ready")
	gone := s.workspace("gone", "prep", "Initializing")
	deleteWorkspace(s, "gone")
	own, name := clusters, clusters+"/cluster"

	t.Run("who sees and does what to which logical cluster", func(t *testing.T) {
		s := &env{T: t, shard: s.shard, masters: s.masters, provider: s.provider, users: s.users}
		states := map[string]string{"waiting": waiting, "foreign": foreign, "none": none, "gone": gone, "unknown": "nosuchcluster"}
		for _, who := range []string{"permitted", "masters", "stranger", "neighbour"} {
			permitted := who == "permitted" || who == "masters"
			for state, cluster := range states {
				// get, status, status patch: not found unless it waits; forbidden for whoever may not initialize.
				code, contentCode := http.StatusNotFound, http.StatusForbidden
				switch {
				case !permitted:
					code = http.StatusForbidden
				case state == "waiting":
					code, contentCode = http.StatusOK, http.StatusOK
				case state == "gone" || state == "unknown":
					contentCode = http.StatusInternalServerError
				}
				s.want(code, who, http.MethodGet, s.initializing("prep", cluster, name), "")
				s.want(code, who, http.MethodGet, s.initializing("prep", cluster, name+"/status"), "")
				s.want(code, who, http.MethodPatch, s.initializing("prep", cluster, name+"/status"), `{"status":{"conditions":[]}}`)
				s.want(contentCode, who, http.MethodGet, s.initializing("prep", cluster, "/api/v1/namespaces/default"), "")
				s.want(contentCode, who, http.MethodGet, s.initializing("prep", cluster, "/apis"), "")
			}
			code := http.StatusForbidden
			if permitted {
				code = http.StatusOK
			}
			content := s.want(code, who, http.MethodGet, s.initializing("prep", "*", own), "")
			if permitted {
				if names := listed(t, content); len(names) != 1 || !names[waiting] {
					t.Errorf("%s lists %v, want %s alone", who, names, waiting)
				}
			}
			s.want(code, who, http.MethodGet, s.initializing("prep", "*", "/apis/core.kcp.io/v1alpha1"), "")
			s.want(code, who, http.MethodGet, s.initializing("prep", "*", "/openapi/v3"), "")
		}
	})

	t.Run("URLs that lead nowhere", func(t *testing.T) {
		s := &env{T: t, shard: s.shard, masters: s.masters, provider: s.provider, users: s.users}
		for _, path := range []string{"/services/", "/services/nothing/x", "/services/initializingworkspaces/x", "/services/initializingworkspaces/" + s.provider + ":prep/clusters/root:none/api"} {
			if body := s.want(http.StatusForbidden, "permitted", http.MethodGet, path, ""); !strings.Contains(body, "Path not resolved to a valid virtual workspace") {
				t.Errorf("%s: %s", path, body)
			}
			s.want(http.StatusNotFound, "masters", http.MethodGet, path, "")
		}
		for _, owner := range []string{"nonsense", "system:apibindings", "root:universal"} {
			s.want(http.StatusForbidden, "permitted", http.MethodGet, "/services/initializingworkspaces/"+owner+"/clusters/*"+own, "")
		}
		s.want(http.StatusNotFound, "permitted", http.MethodGet, s.initializing("prep", "*", "/api/v1/namespaces"), "")
		s.want(http.StatusNotFound, "permitted", http.MethodGet, s.initializing("prep", "*", "/apis/tenancy.kcp.io/v1alpha1/workspaces"), "")
		s.want(http.StatusBadRequest, "permitted", http.MethodGet, s.initializing("prep", "*", name), "")
		s.want(http.StatusMethodNotAllowed, "permitted", http.MethodDelete, s.initializing("prep", waiting, name), "")
		s.want(http.StatusMethodNotAllowed, "permitted", http.MethodPatch, s.initializing("prep", waiting, name), `{"metadata":{"annotations":{"a":"b"}}}`)
		s.want(http.StatusNotFound, "permitted", http.MethodGet, s.initializing("prep", waiting, name+"/scale"), "")
	})

	t.Run("strangers without a name, and the checks of readiness", func(t *testing.T) {
		s := &env{T: t, shard: s.shard, masters: s.masters, provider: s.provider, users: map[string]*rest.Config{"nobody": rest.AnonymousClientConfig(s.shard.Masters(t)), "masters": s.users["masters"]}}
		for _, path := range []string{s.initializing("prep", "*", own), s.initializing("prep", waiting, name), s.initializing("prep", waiting, "/api/v1/secrets"), s.terminating("ending", "*", own), s.initializing("prep", waiting, "/healthz"), "/services/x"} {
			s.want(http.StatusForbidden, "nobody", http.MethodGet, path, "")
		}
		body := s.want(http.StatusOK, "masters", http.MethodGet, "/readyz?verbose=1", "")
		for _, check := range []string{"initializingworkspaces-wildcard-logicalclusters", "initializingworkspaces-logicalclusters", "initializingworkspaces-workspace-content", "terminatingworkspaces-logicalclusters"} {
			if !strings.Contains(body, "[+]"+check+" ok") {
				t.Errorf("no check %s in %s", check, body)
			}
		}
	})

	t.Run("the caller brings no identity of its own choosing", func(t *testing.T) {
		s := &env{T: t, shard: s.shard, masters: s.masters, provider: s.provider, users: map[string]*rest.Config{"user": s.shard.User(t), "admin": s.shard.Admin(t)}}
		// kcp-admin may initialize everything and impersonate everybody, but not here.
		s.want(http.StatusOK, "admin", http.MethodGet, s.initializing("prep", waiting, name), "")
		s.want(http.StatusForbidden, "admin", http.MethodGet, s.initializing("prep", waiting, name), "", "Impersonate-User", "alice")
		s.want(http.StatusForbidden, "admin", http.MethodGet, s.initializing("prep", waiting, "/api/v1/namespaces/default"), "", "Impersonate-User", "alice", "Impersonate-Group", "system:masters")
		s.want(http.StatusForbidden, "user", http.MethodGet, s.initializing("prep", waiting, name), "")
	})

	t.Run("without permissions of its own an initializer acts as the creator", func(t *testing.T) {
		s := &env{T: t, shard: s.shard, masters: s.masters, provider: s.provider, users: s.users}
		body := s.want(http.StatusCreated, "permitted", http.MethodPost, s.initializing("prep", waiting, "/apis/authentication.k8s.io/v1/selfsubjectreviews"), `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`)
		if !strings.Contains(body, `"username":"alice"`) || strings.Contains(body, "system:masters") {
			t.Errorf("acts as %s", body)
		}
		s.want(http.StatusCreated, "permitted", http.MethodPost, s.initializing("prep", waiting, "/api/v1/namespaces/default/configmaps"), `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"made"}}`)
	})

	t.Run("with permissions it has these and nothing else", func(t *testing.T) {
		s := &env{T: t, shard: s.shard, masters: s.masters, provider: s.provider, users: s.users}
		ruled := s.workspace("ruled", "ruled", "Initializing")
		s.want(http.StatusOK, "permitted", http.MethodGet, s.initializing("ruled", ruled, "/api/v1/namespaces"), "")
		s.want(http.StatusForbidden, "masters", http.MethodGet, s.initializing("ruled", ruled, "/api/v1/secrets"), "")
		body := s.want(http.StatusForbidden, "permitted", http.MethodGet, s.initializing("ruled", ruled, "/api/v1/secrets"), "")
		if !strings.Contains(body, "denied by initializerPermissions: no rule allows list on core/secrets") {
			t.Error(body)
		}
		s.create(shardtesting.In(t.Context(), ruled), namespace("default"))
		// A patch that turns out to be a creation needs the verb for that.
		path := s.initializing("ruled", ruled, "/api/v1/namespaces/default/configmaps/new?fieldManager=x")
		s.want(http.StatusForbidden, "permitted", http.MethodPatch, path, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"new"}}`, "Content-Type", "application/apply-patch+yaml")
		s.want(http.StatusForbidden, "permitted", http.MethodGet, s.initializing("prep", ruled, "/api/v1/namespaces"), "")
	})

	t.Run("only its own turn is an initializer's to take", func(t *testing.T) {
		s := &env{T: t, shard: s.shard, masters: s.masters, provider: s.provider, users: s.users}
		both := s.workspace("both", "both", "Initializing")
		prep, last := s.provider+":prep", s.provider+":both"
		s.want(http.StatusUnprocessableEntity, "permitted", http.MethodPatch, s.initializing("both", both, name+"/status"), withInitializers(last))
		s.want(http.StatusUnprocessableEntity, "masters", http.MethodPatch, s.initializing("both", both, name+"/status"), withInitializers())
		s.want(http.StatusUnprocessableEntity, "permitted", http.MethodPatch, s.initializing("both", both, name+"/status"), `{"status":{"phase":"Ready"}}`)
		stream := s.watch("permitted", s.initializing("prep", "*", own+"?watch=1"))
		stream.until(t, "ADDED", both)
		body := s.want(http.StatusOK, "permitted", http.MethodPatch, s.initializing("prep", both, name+"/status"), withInitializers(last))
		var left corev1alpha1.LogicalCluster
		if err := json.Unmarshal([]byte(body), &left); err != nil || len(left.Status.Initializers) != 1 {
			t.Errorf("%v: %s", err, body)
		}
		stream.until(t, "DELETED", both)
		s.want(http.StatusNotFound, "permitted", http.MethodGet, s.initializing("prep", both, name), "")
		s.want(http.StatusForbidden, "permitted", http.MethodGet, s.initializing("prep", both, "/api/v1/namespaces"), "")
		_ = prep
		s.want(http.StatusOK, "permitted", http.MethodPatch, s.initializing("both", both, name+"/status"), withInitializers())
		s.shard.WaitReady(t, "root", "both")
	})

	t.Run("a continue token leads no further than the first page", func(t *testing.T) {
		s := &env{T: t, shard: s.shard, masters: s.masters, provider: s.provider, users: s.users}
		var all corev1alpha1.LogicalClusterList
		if err := json.Unmarshal([]byte(s.want(http.StatusOK, "masters", http.MethodGet, "/clusters/*"+own+"?limit=1", "")), &all); err != nil || all.Continue == "" {
			t.Fatalf("no token to begin with: %v", err)
		}
		if names := listed(t, s.want(http.StatusOK, "permitted", http.MethodGet, s.initializing("prep", "*", own+"?continue="+all.Continue), "")); len(names) > 1 || len(names) == 1 && !names[waiting] {
			t.Errorf("listed %v", names)
		}
		if names := listed(t, s.want(http.StatusOK, "permitted", http.MethodGet, s.initializing("prep", "*", own+"?labelSelector=tenancy.kcp.io/phase%3DReady"), "")); len(names) != 0 {
			t.Errorf("a selector widens the list: %v", names)
		}
	})
}

func TestTerminatingWorkspaces(t *testing.T) {
	s := newEnv(t)
	name := clusters + "/cluster"
	cluster := s.workspace("ending", "ending", "Ready")
	s.want(http.StatusNotFound, "permitted", http.MethodGet, s.terminating("ending", cluster, name), "")
	s.want(http.StatusForbidden, "permitted", http.MethodGet, s.terminating("ending", cluster, "/api/v1/namespaces"), "")
	stream := s.watch("permitted", s.terminating("ending", "*", clusters+"?watch=1"))
	if err := s.masters.Delete(shardtesting.In(t.Context(), "root"), &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "ending"}}); err != nil {
		t.Fatal(err)
	}
	stream.until(t, "ADDED", cluster)
	for who, code := range map[string]int{"permitted": http.StatusOK, "masters": http.StatusOK, "stranger": http.StatusForbidden, "neighbour": http.StatusForbidden} {
		s.want(code, who, http.MethodGet, s.terminating("ending", cluster, name), "")
		s.want(code, who, http.MethodGet, s.terminating("ending", cluster, "/api/v1/namespaces"), "")
		s.want(code, who, http.MethodGet, s.terminating("ending", "*", clusters), "")
	}
	if body := s.want(http.StatusOK, "permitted", http.MethodGet, s.terminating("ending", cluster, "/apis"), ""); strings.Contains(body, "rbac") {
		t.Errorf("discovery shows the content: %s", body)
	}
	s.want(http.StatusForbidden, "permitted", http.MethodGet, s.terminating("ending", cluster, "/api/v1/secrets"), "")
	s.want(http.StatusMethodNotAllowed, "permitted", http.MethodPatch, s.terminating("ending", cluster, name), `{"metadata":{"annotations":{"a":"b"}}}`)
	s.want(http.StatusUnprocessableEntity, "permitted", http.MethodPatch, s.terminating("ending", cluster, name+"/status"), `{"status":{"terminators":["root:other"]}}`)
	s.want(http.StatusOK, "permitted", http.MethodPatch, s.terminating("ending", cluster, name+"/status"), `{"status":{"terminators":[]}}`)
	stream.until(t, "DELETED", cluster)
	waitGone(s, "ending")
}
