package virtual

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/syncerview"
	"github.com/atoll-dev/atoll/shardserver/loopback"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
)

const group = "example.com"

// env is an installation with the workspaces of the matrix.
type env struct {
	*testing.T
	masters client.Client
	// callers are the users of the matrix, with their clients.
	callers map[string]caller
	// clusters are the logical clusters of workspaces, by name.
	clusters     map[string]string
	installation *installation.Installation
	// backend serves custom subresources.
	backend *shardtesting.SubresourceBackend
}

type caller struct {
	host   string
	client *http.Client
}

// binaries are built once.
var binaries string

func TestMain(m *testing.M) {
	directory, err := os.MkdirTemp("", "virtual-")
	if err == nil {
		err = installation.Build(context.Background(), "../..", directory)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binaries = directory
	code := m.Run()
	os.RemoveAll(directory)
	os.Exit(code)
}

func newEnv(t *testing.T) *env {
	backend := shardtesting.NewSubresourceBackend(t)
	i := installation.Start(t, binaries, append(backend.Flags(), "--feature-gates=CacheAPIs=true")...)
	s := &env{T: t, callers: map[string]caller{}, clusters: map[string]string{}, installation: i, backend: backend}
	masters := i.User(t, "root", "masters", "system:masters")
	masters.Host = i.URL
	masters = i.Direct(t, masters)
	var err error
	if s.masters, err = loopback.NewClient(masters); err != nil {
		t.Fatal(err)
	}
	for _, name := range callers {
		config := masters
		if name != "masters" {
			config = i.User(t, "root", name)
			config.Host = i.URL
		}
		transport, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(transport.CloseIdleConnections)
		s.callers[name] = caller{config.Host, transport}
	}
	return s
}

func (e *env) workspaceContext(workspace string) context.Context {
	return shardtesting.In(e.Context(), e.clusters[workspace])
}

func (e *env) createObjects(workspace string, objects ...client.Object) {
	e.Helper()
	for _, object := range objects {
		shardtesting.Eventually(e.T, fmt.Sprintf("creating %T %s in %s", object, object.GetName(), workspace), func(context.Context) error {
			return client.IgnoreAlreadyExists(e.masters.Create(e.workspaceContext(workspace), object))
		})
	}
}

// workspaceShard returns the shard of a workspace. The shards of consumers serve virtual workspaces, and the
// front proxy routes to that of root; providers are on the two others.
func workspaceShard(workspace string) string {
	switch workspace {
	case "provider", "other-owner":
		return installation.Alpha
	case "owner", "other-provider":
		return installation.Beta
	}
	return installation.Root
}

// createWorkspace creates a workspace with an owner below root, and waits until it is in a phase.
func (e *env) createWorkspace(name, owner, phase string, workspaceType *tenancyv1alpha1.WorkspaceTypeReference) {
	e.Helper()
	root := shardtesting.In(e.Context(), "root")
	workspace := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
		tenancyv1alpha1.ExperimentalWorkspaceOwnerAnnotationKey: `{"username":"` + owner + `","groups":["system:authenticated"]}`,
	}}, Spec: tenancyv1alpha1.WorkspaceSpec{Type: workspaceType}}
	shardtesting.OnShard(workspaceShard(name))(workspace)
	shardtesting.Eventually(e.T, "creating "+name+", whose type may be on another shard", func(context.Context) error {
		return client.IgnoreAlreadyExists(e.masters.Create(root, workspace))
	})
	shardtesting.Eventually(e.T, name+" is "+phase, func(ctx context.Context) error {
		if err := e.masters.Get(root, client.ObjectKeyFromObject(workspace), workspace); err != nil {
			return err
		}
		if string(workspace.Status.Phase) != phase {
			return fmt.Errorf("phase %q, conditions %+v", workspace.Status.Phase, workspace.Status.Conditions)
		}
		return nil
	})
	e.clusters[name] = workspace.Spec.Cluster
}

// createUniversalWorkspace creates a workspace of type universal.
func (e *env) createUniversalWorkspace(name string) {
	e.Helper()
	e.createWorkspace(name, "owner", "Ready", &tenancyv1alpha1.WorkspaceTypeReference{Name: "universal", Path: "root"})
}

// grantRole creates a role and binds it to a user in a workspace.
func (e *env) grantRole(workspace, user string, rules ...rbacv1.PolicyRule) {
	e.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "of-" + user}, Rules: rules}
	e.createObjects(workspace, role, &rbacv1.ClusterRoleBinding{ObjectMeta: role.ObjectMeta,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}}})
}

var allRules = []rbacv1.PolicyRule{
	{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}},
	{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}},
}

// export exports a resource from a workspace, and returns its identity hash.
func (e *env) export(workspace, resource, kind string, claims ...apisv1alpha2.PermissionClaim) string {
	e.Helper()
	apiSchema := shardtesting.NewSchema("v1", schema.GroupResource{Group: group, Resource: resource}, kind)
	export := &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: resource}, Spec: apisv1alpha2.APIExportSpec{
		Resources: []apisv1alpha2.ResourceSchema{{Name: resource, Group: group, Schema: apiSchema.Name,
			Storage: apisv1alpha2.ResourceSchemaStorage{CRD: &apisv1alpha2.ResourceSchemaStorageCRD{}}}},
		PermissionClaims: claims,
	}}
	e.createObjects(workspace, apiSchema, export)
	shardtesting.Eventually(e.T, "the identity of "+resource, func(context.Context) error {
		if err := e.masters.Get(e.workspaceContext(workspace), client.ObjectKeyFromObject(export), export); err != nil {
			return err
		}
		if export.Status.IdentityHash == "" {
			return fmt.Errorf("conditions %+v", export.Status.Conditions)
		}
		return nil
	})
	return export.Status.IdentityHash
}

// bind binds an export of another workspace, and accepts or rejects its claims.
func (e *env) bind(workspace, provider, name string, state apisv1alpha2.AcceptablePermissionClaimState, claims ...apisv1alpha2.PermissionClaim) {
	e.Helper()
	binding := &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: apisv1alpha2.APIBindingSpec{
		Reference: apisv1alpha2.BindingReference{Export: &apisv1alpha2.ExportBindingReference{Path: e.clusters[provider], Name: name}},
	}}
	for _, claim := range claims {
		binding.Spec.PermissionClaims = append(binding.Spec.PermissionClaims, apisv1alpha2.AcceptablePermissionClaim{
			PermissionClaim: claim,
			Selector:        apisv1alpha2.PermissionClaimSelector{MatchAll: true},
			State:           state,
		})
	}
	e.createObjects(workspace, binding)
	shardtesting.Eventually(e.T, "binding "+name+" in "+workspace, func(context.Context) error {
		if err := e.masters.Get(e.workspaceContext(workspace), client.ObjectKeyFromObject(binding), binding); err != nil {
			return err
		}
		if binding.Status.Phase != apisv1alpha2.APIBindingPhaseBound {
			return fmt.Errorf("conditions %+v", binding.Status.Conditions)
		}
		return nil
	})
}

// createObject creates an object of a resource of the group, with more metadata as JSON.
func (e *env) createObject(workspace, kind, resource, name, more string) {
	e.Helper()
	path := "/clusters/" + e.clusters[workspace] + "/apis/" + group + "/v1/namespaces/default/" + resource
	body := `{"apiVersion":"` + group + `/v1","kind":"` + kind + `","metadata":{"name":"` + name + `"` + more + `}}`
	shardtesting.Eventually(e.T, "creating "+name+" of "+resource+" in "+workspace, func(context.Context) error {
		if got, content := e.result("masters", http.MethodPost, path, body, "application/json"); got != "201" {
			return fmt.Errorf("%s: %s", got, content)
		}
		return nil
	})
}

// exportClaims returns the claims of the export of the matrix.
func exportClaims(identity string) []apisv1alpha2.PermissionClaim {
	return []apisv1alpha2.PermissionClaim{
		{GroupResource: apisv1alpha2.GroupResource{Resource: "configmaps"}, Verbs: []string{"get", "list", "watch", "create"}},
		{GroupResource: apisv1alpha2.GroupResource{Group: group, Resource: "gizmos"}, IdentityHash: identity, Verbs: []string{"*"}},
	}
}

// createExports creates the workspaces for the virtual workspaces of exports and schemas.
func (e *env) createExports() {
	e.Helper()
	for _, name := range []string{"provider", "owner", "other-owner", "other-provider"} {
		e.createUniversalWorkspace(name)
	}
	identity := e.export("owner", "gizmos", "Gizmo")
	e.export("other-owner", "gizmos", "Gizmo")
	e.export("other-provider", "widgets", "Widget")
	claims := exportClaims(identity)
	e.export("provider", "widgets", "Widget", claims...)
	e.describeSyncerView()
	e.grantRole("provider", "provider", rbacv1.PolicyRule{Verbs: []string{"*"}, APIGroups: []string{apisv1alpha1.SchemeGroupVersion.Group}, Resources: []string{"apiexports/content"}},
		rbacv1.PolicyRule{Verbs: []string{"sync"}, APIGroups: []string{apisv1alpha1.SchemeGroupVersion.Group}, Resources: []string{"apiexports"}, ResourceNames: []string{"widgets"}},
		rbacv1.PolicyRule{Verbs: []string{"access"}, NonResourceURLs: []string{"/"}},
		rbacv1.PolicyRule{Verbs: []string{"initialize", "terminate"}, APIGroups: []string{"tenancy.kcp.io"}, Resources: []string{"workspacetypes"}})
	for _, name := range exportStates {
		e.createUniversalWorkspace(name)
		e.grantRole(name, "consumer", allRules...)
		state := apisv1alpha2.ClaimAccepted
		if name == "rejected" {
			state = apisv1alpha2.ClaimRejected
		}
		e.createObjects(name,
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "existing"}},
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "existing"}})
		switch name {
		case "unbound":
			continue
		case "other":
			e.bind(name, "other-provider", "widgets", state)
			e.createObject(name, "Widget", "widgets", "existing", "")
			continue
		case "mismatch":
			e.bind(name, "other-owner", "gizmos", state)
		default:
			e.bind(name, "owner", "gizmos", state)
		}
		e.bind(name, "provider", "widgets", state, claims...)
		e.createObject(name, "Widget", "widgets", "existing", "")
		e.createObject(name, "Widget", "widgets", "hidden", `,"labels":{"sync":"no"}`)
		e.createObject(name, "Gizmo", "gizmos", "existing", "")
	}
	e.createObject("deleting", "Widget", "widgets", "held", `,"finalizers":["example.com/hold"]`)
	if err := e.masters.Delete(e.workspaceContext("deleting"), &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: "widgets"}}); err != nil {
		e.Fatal(err)
	}
}

// describeSyncerView publishes the widgets of the provider as gadgets of a service cluster, except some.
func (e *env) describeSyncerView() {
	e.Helper()
	const description = `{"resources":[{"group":"` + group + `","resource":"widgets","source":{"group":"service.io","kind":"Gadget","resource":"gadgets"},"filter":{"resource":{"matchExpressions":[{"key":"sync","operator":"DoesNotExist"}]}}}]}`
	body := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, syncerview.Annotation, description)
	path := "/clusters/" + e.clusters["provider"] + "/apis/apis.kcp.io/v1alpha2/apiexports/widgets"
	if got, content := e.result("masters", http.MethodPatch, path, body, "application/merge-patch+json"); got != "200" {
		e.Fatalf("describing the syncer's view: %s: %s", got, content)
	}
}

// waitForFixtures waits until all fixtures have reached their final state.
func (e *env) waitForFixtures() {
	e.Helper()
	wait := func(workspace, path, want string) {
		e.Helper()
		basePath := virtualWorkspaces[0].basePath(e, workspace)
		shardtesting.Eventually(e.T, path+" of "+workspace+" is "+want, func(context.Context) error {
			if got, content := e.result("provider", http.MethodGet, basePath+path, "", ""); got != want {
				return fmt.Errorf("%s: %.300s", got, content)
			}
			return nil
		})
	}
	for _, workspace := range []string{"bound", "mismatch"} {
		wait(workspace, "/api/v1/namespaces/default/configmaps/existing", "200")
	}
	gadgets := "/services/syncer/" + e.clusters["provider"] + ":widgets/clusters/*/apis/service.io/v1/gadgets"
	shardtesting.Eventually(e.T, "the syncer's view is served", func(context.Context) error {
		if got, content := e.result("provider", http.MethodGet, gadgets, "", ""); got != "200" {
			return fmt.Errorf("%s: %.300s", got, content)
		}
		return nil
	})
	wait("bound", "/apis/example.com/v1/namespaces/default/gizmos/existing", "200")
	held := "/clusters/" + e.clusters["deleting"] + "/apis/" + group + "/v1/namespaces/default/widgets/held"
	shardtesting.Eventually(e.T, "the binding is being deleted", func(context.Context) error {
		if got, content := e.result("masters", http.MethodGet, held, "", ""); got != "200" || !strings.Contains(content, "deletionTimestamp") {
			return fmt.Errorf("%s: %s", got, content)
		}
		return nil
	})
}
