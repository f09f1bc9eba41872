package virtual_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

const clustersPath = "/apis/core.kcp.io/v1alpha1/logicalclusters"

// env is a shard with a workspace whose types have initializers and terminators.
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
	ctx := shardtesting.In(t.Context(), s.provider)
	s.create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "lifecycle"}, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"initialize", "terminate"}, APIGroups: []string{"tenancy.kcp.io"}, Resources: []string{"workspacetypes"}},
		{Verbs: []string{"access"}, NonResourceURLs: []string{"/"}},
	}})
	s.create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "neighbour"}, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"get", "list"}, APIGroups: []string{"*"}, Resources: []string{"*"}},
		{Verbs: []string{"access"}, NonResourceURLs: []string{"/"}},
	}})
	s.bindRole(ctx, "lifecycle", "permitted")
	s.bindRole(ctx, "neighbour", "neighbour")
	rules := []rbacv1.PolicyRule{{Verbs: []string{"get", "list", "patch"}, APIGroups: []string{""}, Resources: []string{"configmaps", "namespaces"}}}
	for _, workspaceType := range []*tenancyv1alpha1.WorkspaceType{
		{ObjectMeta: metav1.ObjectMeta{Name: "prep"}, Spec: tenancyv1alpha1.WorkspaceTypeSpec{Initializer: true, Extend: tenancyv1alpha1.WorkspaceTypeExtension{With: []tenancyv1alpha1.WorkspaceTypeReference{{Name: "universal", Path: "root"}}}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: tenancyv1alpha1.WorkspaceTypeSpec{Initializer: true}},
		{ObjectMeta: metav1.ObjectMeta{Name: "both"}, Spec: tenancyv1alpha1.WorkspaceTypeSpec{Initializer: true, Extend: tenancyv1alpha1.WorkspaceTypeExtension{With: []tenancyv1alpha1.WorkspaceTypeReference{{Name: "prep", Path: s.provider}}}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "ruled"}, Spec: tenancyv1alpha1.WorkspaceTypeSpec{Initializer: true, InitializerPermissions: rules}},
		{ObjectMeta: metav1.ObjectMeta{Name: "ending"}, Spec: tenancyv1alpha1.WorkspaceTypeSpec{Terminator: true, TerminatorPermissions: rules}},
	} {
		s.create(ctx, workspaceType)
	}
	return s
}

func (e *env) create(ctx context.Context, obj client.Object) {
	e.Helper()
	if err := e.masters.Create(ctx, obj); err != nil {
		e.Fatal(err)
	}
}

func (e *env) bindRole(ctx context.Context, role, user string) {
	e.Helper()
	e.create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{GenerateName: role + "-"},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}, Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}}})
}

// newWorkspace creates a workspace in root, as alice, with a type of the provider, and waits until it has a phase.
func (e *env) newWorkspace(name, workspaceType, phase string) string {
	e.Helper()
	root := shardtesting.In(e.Context(), "root")
	workspace := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
		tenancyv1alpha1.ExperimentalWorkspaceOwnerAnnotationKey: `{"username":"alice","groups":["system:authenticated","system:masters"]}`,
	}}, Spec: tenancyv1alpha1.WorkspaceSpec{Type: &tenancyv1alpha1.WorkspaceTypeReference{Path: e.provider, Name: tenancyv1alpha1.WorkspaceTypeName(workspaceType)}}}
	if workspaceType == "universal" {
		workspace.Spec.Type.Path = "root"
	}
	e.create(root, workspace)
	shardtesting.Eventually(e.T, name+" is "+phase, func(ctx context.Context) error {
		if err := e.masters.Get(root, client.ObjectKeyFromObject(workspace), workspace); err != nil {
			return err
		}
		// The server's own initializers have been removed by then.
		if string(workspace.Status.Phase) != phase || strings.Contains(fmt.Sprint(workspace.Status.Initializers), "system:") || strings.Contains(fmt.Sprint(workspace.Status.Initializers), "root:") {
			return fmt.Errorf("status %+v", workspace.Status)
		}
		// The Workspace may be updated shortly before its logical cluster.
		cluster := &corev1alpha1.LogicalCluster{}
		err := e.masters.Get(shardtesting.In(ctx, workspace.Spec.Cluster), client.ObjectKey{Name: "cluster"}, cluster)
		if err == nil && string(cluster.Status.Phase) != phase {
			err = fmt.Errorf("logical cluster in phase %s", cluster.Status.Phase)
		}
		return err
	})
	return workspace.Spec.Cluster
}

func (e *env) initializingPath(workspaceType, cluster, path string) string {
	return "/services/initializingworkspaces/" + e.provider + ":" + workspaceType + "/clusters/" + cluster + path
}

func (e *env) terminatingPath(workspaceType, cluster, path string) string {
	return "/services/terminatingworkspaces/" + e.provider + ":" + workspaceType + "/clusters/" + cluster + path
}

// do sends one request and returns status and body.
func (e *env) do(userName, method, path, body string, headers ...string) (int, string) {
	e.Helper()
	response, content := shardtesting.Send(e, e.users[userName], method, path, body, headers...)
	return response.StatusCode, content
}

func (e *env) expectStatus(code int, userName, method, path, body string, headers ...string) string {
	e.Helper()
	got, content := e.do(userName, method, path, body, headers...)
	if got != code {
		e.Errorf("%s %s as %s: %d, want %d: %s", method, path, userName, got, code, content)
	}
	return content
}

// parseClusterNames returns the logical clusters of a list.
func parseClusterNames(t *testing.T, content string) map[string]bool {
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

// newInitializersPatch returns a merge patch that sets the remaining initializers.
func newInitializersPatch(names ...string) string {
	raw, _ := json.Marshal(map[string]any{"status": map[string]any{"initializers": append([]string{}, names...)}})
	return string(raw)
}

func TestVirtualWorkspaces(t *testing.T) {
	s := newEnv(t)
	waiting := s.newWorkspace("waiting", "prep", "Initializing")
	otherType := s.newWorkspace("foreign", "other", "Initializing")
	none := s.newWorkspace("none", "universal", "Ready")
	deleted := s.newWorkspace("gone", "prep", "Initializing")
	deleteWorkspace(s, "gone")
	listPath, name := clustersPath, clustersPath+"/cluster"

	t.Run("access to logical clusters by user", func(t *testing.T) {
		s := &env{T: t, shard: s.shard, masters: s.masters, provider: s.provider, users: s.users}
		states := map[string]string{"waiting": waiting, "foreign": otherType, "none": none, "gone": deleted, "unknown": "nosuchcluster"}
		for _, userName := range []string{"permitted", "masters", "stranger", "neighbour"} {
			permitted := userName == "permitted" || userName == "masters"
			for state, cluster := range states {
				// get, status, status patch: NotFound unless it waits for the owner; Forbidden without permission to
				// initialize.
				code, contentCode := http.StatusNotFound, http.StatusForbidden
				switch {
				case !permitted:
					code = http.StatusForbidden
				case state == "waiting":
					code, contentCode = http.StatusOK, http.StatusOK
				case state == "gone" || state == "unknown":
					contentCode = http.StatusInternalServerError
				}
				s.expectStatus(code, userName, http.MethodGet, s.initializingPath("prep", cluster, name), "")
				s.expectStatus(code, userName, http.MethodGet, s.initializingPath("prep", cluster, name+"/status"), "")
				s.expectStatus(code, userName, http.MethodPatch, s.initializingPath("prep", cluster, name+"/status"), `{"status":{"conditions":[]}}`)
				s.expectStatus(contentCode, userName, http.MethodGet, s.initializingPath("prep", cluster, "/api/v1/namespaces/default"), "")
				s.expectStatus(contentCode, userName, http.MethodGet, s.initializingPath("prep", cluster, "/apis"), "")
			}
			code := http.StatusForbidden
			if permitted {
				code = http.StatusOK
			}
			content := s.expectStatus(code, userName, http.MethodGet, s.initializingPath("prep", "*", listPath), "")
			if permitted {
				if names := parseClusterNames(t, content); len(names) != 1 || !names[waiting] {
					t.Errorf("%s lists %v, want only %s", userName, names, waiting)
				}
			}
			s.expectStatus(code, userName, http.MethodGet, s.initializingPath("prep", "*", "/apis/core.kcp.io/v1alpha1"), "")
			s.expectStatus(code, userName, http.MethodGet, s.initializingPath("prep", "*", "/openapi/v3"), "")
		}
	})

	t.Run("discovery describes logical clusters as that of the shard does", func(t *testing.T) {
		testDiscovery(&env{T: t, shard: s.shard, masters: s.masters, provider: s.provider, users: s.users})
	})

	t.Run("URLs that do not resolve", func(t *testing.T) {
		s := &env{T: t, shard: s.shard, masters: s.masters, provider: s.provider, users: s.users}
		for _, path := range []string{"/services/", "/services/nothing/x", "/services/initializingworkspaces/x", "/services/initializingworkspaces/" + s.provider + ":prep/clusters/root:none/api"} {
			if body := s.expectStatus(http.StatusForbidden, "permitted", http.MethodGet, path, ""); !strings.Contains(body, "Path not resolved to a valid virtual workspace") {
				t.Errorf("%s: %s", path, body)
			}
			s.expectStatus(http.StatusNotFound, "masters", http.MethodGet, path, "")
		}
		for _, owner := range []string{"nonsense", "system:apibindings", "root:universal"} {
			s.expectStatus(http.StatusForbidden, "permitted", http.MethodGet, "/services/initializingworkspaces/"+owner+"/clusters/*"+listPath, "")
		}
		s.expectStatus(http.StatusNotFound, "permitted", http.MethodGet, s.initializingPath("prep", "*", "/api/v1/namespaces"), "")
		s.expectStatus(http.StatusNotFound, "permitted", http.MethodGet, s.initializingPath("prep", "*", "/apis/tenancy.kcp.io/v1alpha1/workspaces"), "")
		s.expectStatus(http.StatusBadRequest, "permitted", http.MethodGet, s.initializingPath("prep", "*", name), "")
		s.expectStatus(http.StatusMethodNotAllowed, "permitted", http.MethodDelete, s.initializingPath("prep", waiting, name), "")
		s.expectStatus(http.StatusMethodNotAllowed, "permitted", http.MethodPatch, s.initializingPath("prep", waiting, name), `{"metadata":{"annotations":{"a":"b"}}}`)
		s.expectStatus(http.StatusNotFound, "permitted", http.MethodGet, s.initializingPath("prep", waiting, name+"/scale"), "")
	})

	t.Run("anonymous requests, and readiness checks", func(t *testing.T) {
		s := &env{T: t, shard: s.shard, masters: s.masters, provider: s.provider, users: map[string]*rest.Config{"anonymous": rest.AnonymousClientConfig(s.shard.Masters(t)), "masters": s.users["masters"]}}
		for _, path := range []string{s.initializingPath("prep", "*", listPath), s.initializingPath("prep", waiting, name), s.initializingPath("prep", waiting, "/api/v1/secrets"), s.terminatingPath("ending", "*", listPath), s.initializingPath("prep", waiting, "/healthz"), "/services/x"} {
			s.expectStatus(http.StatusForbidden, "anonymous", http.MethodGet, path, "")
		}
		body := s.expectStatus(http.StatusOK, "masters", http.MethodGet, "/readyz?verbose=1", "")
		for _, check := range []string{"initializingworkspaces-wildcard-logicalclusters", "initializingworkspaces-logicalclusters", "initializingworkspaces-workspace-content", "terminatingworkspaces-logicalclusters"} {
			if !strings.Contains(body, "[+]"+check+" ok") {
				t.Errorf("no check %s in %s", check, body)
			}
		}
	})

	t.Run("callers cannot choose another identity", func(t *testing.T) {
		s := &env{T: t, shard: s.shard, masters: s.masters, provider: s.provider, users: map[string]*rest.Config{"user": s.shard.User(t), "admin": s.shard.Admin(t)}}
		// kcp-admin may initialize all types and impersonate all users, but not in the virtual workspace.
		s.expectStatus(http.StatusOK, "admin", http.MethodGet, s.initializingPath("prep", waiting, name), "")
		s.expectStatus(http.StatusForbidden, "admin", http.MethodGet, s.initializingPath("prep", waiting, name), "", "Impersonate-User", "alice")
		s.expectStatus(http.StatusForbidden, "admin", http.MethodGet, s.initializingPath("prep", waiting, "/api/v1/namespaces/default"), "", "Impersonate-User", "alice", "Impersonate-Group", "system:masters")
		s.expectStatus(http.StatusForbidden, "user", http.MethodGet, s.initializingPath("prep", waiting, name), "")
	})

	t.Run("an initializer without permissions acts as the creator", func(t *testing.T) {
		s := &env{T: t, shard: s.shard, masters: s.masters, provider: s.provider, users: s.users}
		body := s.expectStatus(http.StatusCreated, "permitted", http.MethodPost, s.initializingPath("prep", waiting, "/apis/authentication.k8s.io/v1/selfsubjectreviews"), `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`)
		if !strings.Contains(body, `"username":"alice"`) || strings.Contains(body, "system:masters") {
			t.Errorf("the user is %s", body)
		}
		s.expectStatus(http.StatusCreated, "permitted", http.MethodPost, s.initializingPath("prep", waiting, "/api/v1/namespaces/default/configmaps"), `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"made"}}`)
	})

	t.Run("the creator's permissions in other logical clusters count", func(t *testing.T) {
		// One caller is impersonated by masters, the other is not impersonated.
		s := &env{T: t, shard: s.shard, masters: s.masters, provider: s.provider, users: map[string]*rest.Config{"permitted": s.users["permitted"], "user": s.shard.User(t)}}
		s.shard.NewExport(t, s.provider, "bounded", schema.GroupResource{Group: "bounded.io", Resource: "things"}, "Thing", func(export *apisv1alpha2.APIExport) {
			export.Spec.MaximalPermissionPolicy = &apisv1alpha2.MaximalPermissionPolicy{Local: &apisv1alpha2.LocalAPIExportPolicy{}}
		})
		in := shardtesting.In(t.Context(), s.provider)
		s.create(in, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "bounded"}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"list"}, APIGroups: []string{"bounded.io"}, Resources: []string{"things"}}}})
		s.bindRole(in, "bounded", "apis.kcp.io:binding:alice")
		s.bindRole(in, "lifecycle", "user")
		s.shard.Bind(t, waiting, s.provider, "bounded")
		for _, caller := range []string{"permitted", "user"} {
			shardtesting.Eventually(t, caller+" may list what the creator may list", func(context.Context) error {
				if got, content := s.do(caller, http.MethodGet, s.initializingPath("prep", waiting, "/apis/bounded.io/v1/things"), ""); got != http.StatusOK {
					return fmt.Errorf("%d: %s", got, content)
				}
				return nil
			})
			s.expectStatus(http.StatusForbidden, caller, http.MethodDelete, s.initializingPath("prep", waiting, "/apis/bounded.io/v1/namespaces/default/things/x"), "")
		}
	})

	t.Run("an initializer with permissions has only these", func(t *testing.T) {
		s := &env{T: t, shard: s.shard, masters: s.masters, provider: s.provider, users: s.users}
		ruled := s.newWorkspace("ruled", "ruled", "Initializing")
		s.expectStatus(http.StatusOK, "permitted", http.MethodGet, s.initializingPath("ruled", ruled, "/api/v1/namespaces"), "")
		s.expectStatus(http.StatusForbidden, "masters", http.MethodGet, s.initializingPath("ruled", ruled, "/api/v1/secrets"), "")
		body := s.expectStatus(http.StatusForbidden, "permitted", http.MethodGet, s.initializingPath("ruled", ruled, "/api/v1/secrets"), "")
		if !strings.Contains(body, "denied by initializerPermissions: no rule allows list on core/secrets") {
			t.Error(body)
		}
		s.create(shardtesting.In(t.Context(), ruled), newNamespace("default"))
		// A patch that creates an object requires the verb create.
		path := s.initializingPath("ruled", ruled, "/api/v1/namespaces/default/configmaps/new?fieldManager=x")
		s.expectStatus(http.StatusForbidden, "permitted", http.MethodPatch, path, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"new"}}`, "Content-Type", "application/apply-patch+yaml")
		s.expectStatus(http.StatusForbidden, "permitted", http.MethodGet, s.initializingPath("prep", ruled, "/api/v1/namespaces"), "")
	})

	t.Run("an initializer can only remove itself", func(t *testing.T) {
		s := &env{T: t, shard: s.shard, masters: s.masters, provider: s.provider, users: s.users}
		both := s.newWorkspace("both", "both", "Initializing")
		prep, last := s.provider+":prep", s.provider+":both"
		s.expectStatus(http.StatusUnprocessableEntity, "permitted", http.MethodPatch, s.initializingPath("both", both, name+"/status"), newInitializersPatch(last))
		s.expectStatus(http.StatusUnprocessableEntity, "masters", http.MethodPatch, s.initializingPath("both", both, name+"/status"), newInitializersPatch())
		s.expectStatus(http.StatusUnprocessableEntity, "permitted", http.MethodPatch, s.initializingPath("both", both, name+"/status"), `{"status":{"phase":"Ready"}}`)
		stream := s.watch("permitted", s.initializingPath("prep", "*", listPath+"?watch=1"))
		stream.waitForEvent(t, "ADDED", both)
		body := s.expectStatus(http.StatusOK, "permitted", http.MethodPatch, s.initializingPath("prep", both, name+"/status"), newInitializersPatch(last))
		var left corev1alpha1.LogicalCluster
		if err := json.Unmarshal([]byte(body), &left); err != nil || len(left.Status.Initializers) != 1 {
			t.Errorf("%v: %s", err, body)
		}
		stream.waitForEvent(t, "DELETED", both)
		s.expectStatus(http.StatusNotFound, "permitted", http.MethodGet, s.initializingPath("prep", both, name), "")
		s.expectStatus(http.StatusForbidden, "permitted", http.MethodGet, s.initializingPath("prep", both, "/api/v1/namespaces"), "")
		_ = prep
		s.expectStatus(http.StatusOK, "permitted", http.MethodPatch, s.initializingPath("both", both, name+"/status"), newInitializersPatch())
		s.shard.WaitReady(t, "root", "both")
	})

	t.Run("a continue token gives no access to other logical clusters", func(t *testing.T) {
		s := &env{T: t, shard: s.shard, masters: s.masters, provider: s.provider, users: s.users}
		var all corev1alpha1.LogicalClusterList
		if err := json.Unmarshal([]byte(s.expectStatus(http.StatusOK, "masters", http.MethodGet, "/clusters/*"+listPath+"?limit=1", "")), &all); err != nil || all.Continue == "" {
			t.Fatalf("no continue token: %v", err)
		}
		if names := parseClusterNames(t, s.expectStatus(http.StatusOK, "permitted", http.MethodGet, s.initializingPath("prep", "*", listPath+"?continue="+all.Continue), "")); len(names) > 1 || len(names) == 1 && !names[waiting] {
			t.Errorf("listed %v", names)
		}
		if names := parseClusterNames(t, s.expectStatus(http.StatusOK, "permitted", http.MethodGet, s.initializingPath("prep", "*", listPath+"?labelSelector=tenancy.kcp.io/phase%3DReady"), "")); len(names) != 0 {
			t.Errorf("a selector widens the list: %v", names)
		}
	})
}

func TestTerminatingWorkspaces(t *testing.T) {
	s := newEnv(t)
	name := clustersPath + "/cluster"
	cluster := s.newWorkspace("ending", "ending", "Ready")
	s.expectStatus(http.StatusNotFound, "permitted", http.MethodGet, s.terminatingPath("ending", cluster, name), "")
	s.expectStatus(http.StatusForbidden, "permitted", http.MethodGet, s.terminatingPath("ending", cluster, "/api/v1/namespaces"), "")
	stream := s.watch("permitted", s.terminatingPath("ending", "*", clustersPath+"?watch=1"))
	if err := s.masters.Delete(shardtesting.In(t.Context(), "root"), &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "ending"}}); err != nil {
		t.Fatal(err)
	}
	stream.waitForEvent(t, "ADDED", cluster)
	for userName, code := range map[string]int{"permitted": http.StatusOK, "masters": http.StatusOK, "stranger": http.StatusForbidden, "neighbour": http.StatusForbidden} {
		s.expectStatus(code, userName, http.MethodGet, s.terminatingPath("ending", cluster, name), "")
		s.expectStatus(code, userName, http.MethodGet, s.terminatingPath("ending", cluster, "/api/v1/namespaces"), "")
		s.expectStatus(code, userName, http.MethodGet, s.terminatingPath("ending", "*", clustersPath), "")
	}
	if body := s.expectStatus(http.StatusOK, "permitted", http.MethodGet, s.terminatingPath("ending", cluster, "/apis"), ""); strings.Contains(body, "rbac") {
		t.Errorf("discovery contains the content: %s", body)
	}
	s.expectStatus(http.StatusForbidden, "permitted", http.MethodGet, s.terminatingPath("ending", cluster, "/api/v1/secrets"), "")
	s.expectStatus(http.StatusMethodNotAllowed, "permitted", http.MethodPatch, s.terminatingPath("ending", cluster, name), `{"metadata":{"annotations":{"a":"b"}}}`)
	s.expectStatus(http.StatusUnprocessableEntity, "permitted", http.MethodPatch, s.terminatingPath("ending", cluster, name+"/status"), `{"status":{"terminators":["root:other"]}}`)
	s.expectStatus(http.StatusOK, "permitted", http.MethodPatch, s.terminatingPath("ending", cluster, name+"/status"), `{"status":{"terminators":[]}}`)
	stream.waitForEvent(t, "DELETED", cluster)
	waitForDeletion(s, "ending")
}
