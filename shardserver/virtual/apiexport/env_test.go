package apiexport_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

const (
	group          = "example.com"
	widgetsPath    = "/apis/" + group + "/v1/namespaces/default/widgets"
	allWidgetsPath = "/apis/" + group + "/v1/widgets"
)

// env is a shard with the workspaces of a provider and of its consumers.
type env struct {
	*testing.T
	shard    *shardtesting.Shard
	masters  client.Client
	users    map[string]*rest.Config
	provider string
	export   string
}

// newEnv starts a shard with a provider whose export "widgets" offers widgets and claims some resources. Users are
// masters, "provider" and "user" with the permission on the export's content, and "stranger" without it. All but "user",
// who has a certificate, are impersonated by masters.
func newEnv(t *testing.T, claims ...apisv1alpha2.PermissionClaim) *env {
	t.Helper()
	return newEnvWith(t, func(*options.Options) {}, claims...)
}

// newEnvWith is newEnv with options.
func newEnvWith(t *testing.T, configure func(*options.Options), claims ...apisv1alpha2.PermissionClaim) *env {
	t.Helper()
	shard := shardtesting.Start(t, configure)
	s := &env{T: t, shard: shard, masters: shard.Client(t, shard.Masters(t)), users: map[string]*rest.Config{"masters": shard.Masters(t), "user": shard.User(t)}, export: "widgets"}
	for _, name := range []string{"provider", "stranger"} {
		config := rest.CopyConfig(shard.Masters(t))
		config.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: []string{"system:authenticated"}}
		s.users[name] = config
	}
	s.provider = shard.NewWorkspace(t, "root", "provider").Spec.Cluster
	s.grantContentAccess(s.provider, "provider")
	s.grantContentAccess(s.provider, "user")
	s.createExport(s.provider, s.export, claims...)
	return s
}

// withT returns the env for a subtest.
func (e *env) withT(t *testing.T) *env {
	copied := *e
	copied.T = t
	return &copied
}

// grantContentAccess grants a user all verbs on the content of the exports of a logical cluster.
func (e *env) grantContentAccess(cluster, name string) {
	e.Helper()
	ctx := shardtesting.In(e.Context(), cluster)
	e.create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "content-" + name}, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"*"}, APIGroups: []string{"apis.kcp.io"}, Resources: []string{"apiexports/content"}},
		{Verbs: []string{"access"}, NonResourceURLs: []string{"/"}},
	}})
	e.create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "content-" + name},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "content-" + name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}}})
}

func (e *env) create(ctx context.Context, obj client.Object) {
	e.Helper()
	if err := e.masters.Create(ctx, obj); err != nil {
		e.Fatal(err)
	}
}

// newSchema describes a namespaced resource of a group, with a status and scale.
func newSchema(prefix, plural, group string) *apisv1alpha1.APIResourceSchema {
	text := `{"type":"object","properties":{"spec":{"type":"object","properties":{"size":{"type":"integer"},"replicas":{"type":"integer"}}},
		"status":{"type":"object","properties":{"phase":{"type":"string"},"replicas":{"type":"integer"}}}}}`
	singular := strings.TrimSuffix(plural, "s")
	return &apisv1alpha1.APIResourceSchema{
		ObjectMeta: metav1.ObjectMeta{Name: prefix + "." + plural + "." + group},
		Spec: apisv1alpha1.APIResourceSchemaSpec{
			Group: group,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: plural, Singular: singular, Kind: strings.ToUpper(singular[:1]) + singular[1:], ListKind: strings.ToUpper(singular[:1]) + singular[1:] + "List",
			},
			Scope: apiextensionsv1.NamespaceScoped,
			Versions: []apisv1alpha1.APIResourceVersion{{
				Name: "v1", Served: true, Storage: true, Schema: runtime.RawExtension{Raw: []byte(text)},
				Subresources: apiextensionsv1.CustomResourceSubresources{
					Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
					Scale:  &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas"},
				},
				AdditionalPrinterColumns: []apiextensionsv1.CustomResourceColumnDefinition{{Name: "Size", Type: "integer", JSONPath: ".spec.size"}},
			}},
		},
	}
}

// createExport creates an export of the resource of the same name, waits for its identity, and returns it.
func (e *env) createExport(cluster, name string, claims ...apisv1alpha2.PermissionClaim) string {
	e.Helper()
	clusterCtx := shardtesting.In(e.Context(), cluster)
	resourceSchema := newSchema("v1", name, group)
	e.create(clusterCtx, resourceSchema)
	export := &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: apisv1alpha2.APIExportSpec{
		Resources:        []apisv1alpha2.ResourceSchema{{Name: name, Group: group, Schema: resourceSchema.Name, Storage: apisv1alpha2.ResourceSchemaStorage{CRD: &apisv1alpha2.ResourceSchemaStorageCRD{}}}},
		PermissionClaims: claims,
	}}
	e.create(clusterCtx, export)
	shardtesting.Eventually(e.T, "export "+name+" has an identity", func(ctx context.Context) error {
		if err := e.masters.Get(clusterCtx, client.ObjectKeyFromObject(export), export); err != nil {
			return err
		}
		if export.Status.IdentityHash == "" {
			return fmt.Errorf("status %+v", export.Status)
		}
		return nil
	})
	return export.Status.IdentityHash
}

// acceptClaim returns a claim that a consumer accepts for all objects.
func acceptClaim(claim apisv1alpha2.PermissionClaim) apisv1alpha2.AcceptablePermissionClaim {
	return apisv1alpha2.AcceptablePermissionClaim{
		PermissionClaim: claim, Selector: apisv1alpha2.PermissionClaimSelector{MatchAll: true},
		State: apisv1alpha2.ClaimAccepted,
	}
}

// bind binds an export in a logical cluster and waits until it is bound.
func (e *env) bind(cluster, provider, name string, claims ...apisv1alpha2.AcceptablePermissionClaim) {
	e.Helper()
	clusterCtx := shardtesting.In(e.Context(), cluster)
	binding := &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: apisv1alpha2.APIBindingSpec{
		Reference:        apisv1alpha2.BindingReference{Export: &apisv1alpha2.ExportBindingReference{Path: provider, Name: name}},
		PermissionClaims: claims,
	}}
	e.create(clusterCtx, binding)
	shardtesting.Eventually(e.T, "binding "+name+" is bound", func(ctx context.Context) error {
		if err := e.masters.Get(clusterCtx, client.ObjectKeyFromObject(binding), binding); err != nil {
			return err
		}
		if binding.Status.Phase != apisv1alpha2.APIBindingPhaseBound {
			return fmt.Errorf("status %+v", binding.Status)
		}
		return nil
	})
}

// newConsumer creates a workspace that binds the export of the env.
func (e *env) newConsumer(name string, claims ...apisv1alpha2.AcceptablePermissionClaim) string {
	e.Helper()
	cluster := e.shard.NewWorkspace(e.T, "root", name).Spec.Cluster
	e.bind(cluster, e.provider, e.export, claims...)
	return cluster
}

// virtualPath returns a path of the virtual workspace of the env's export.
func (e *env) virtualPath(cluster, path string) string {
	return "/services/apiexport/" + e.provider + "/" + e.export + "/clusters/" + cluster + path
}

// do sends one request and returns status and body.
func (e *env) do(userName, method, path, body string, headers ...string) (int, string) {
	e.Helper()
	response, content := shardtesting.Send(e, e.users[userName], method, path, body, headers...)
	return response.StatusCode, content
}

// expectStatus sends one request, checks the status and returns the body.
func (e *env) expectStatus(code int, userName, method, path, body string, headers ...string) string {
	e.Helper()
	got, content := e.do(userName, method, path, body, headers...)
	if got != code {
		e.Errorf("%s %s as %s: %d, want %d: %.500s", method, path, userName, got, code, content)
	}
	return content
}

// eventuallyStatus is expectStatus for results that controllers or caches produce with a delay.
func (e *env) eventuallyStatus(code int, userName, method, path, body string) string {
	e.Helper()
	content := ""
	shardtesting.Eventually(e.T, fmt.Sprintf("%s %s as %s is %d", method, path, userName, code), func(context.Context) error {
		var got int
		if got, content = e.do(userName, method, path, body); got != code {
			return fmt.Errorf("%d: %.500s", got, content)
		}
		return nil
	})
	return content
}

func (e *env) newWidgetJSON(name, more string) string {
	return `{"apiVersion":"` + group + `/v1","kind":"Widget","metadata":{"name":"` + name + `"` + more + `},"spec":{"size":1}}`
}

func newConfigMapJSON(name, more string) string {
	return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"` + more + `},"data":{"a":"b"}}`
}

// parseList returns "<cluster>/<name>" of the items of a list.
func (e *env) parseList(content string) map[string]bool {
	e.Helper()
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal([]byte(content), &list); err != nil {
		e.Fatalf("%v: %s", err, content)
	}
	found := map[string]bool{}
	for i := range list.Items {
		found[list.Items[i].Annotations["kcp.io/cluster"]+"/"+list.Items[i].Name] = true
	}
	return found
}

// watchStream is an open watch.
type watchStream struct {
	decoder *json.Decoder
	close   func()
}

// watch opens a watch.
func (e *env) watch(userName, path string) *watchStream {
	e.Helper()
	ctx, cancel := context.WithCancel(e.Context())
	resp := shardtesting.Open(ctx, e, e.users[userName], http.MethodGet, path, "")
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(resp.Body)
		e.Fatalf("watching %s: %d: %s", path, resp.StatusCode, body)
	}
	e.Cleanup(func() { cancel(); _ = resp.Body.Close() })
	return &watchStream{decoder: json.NewDecoder(resp.Body), close: cancel}
}

// nextEvent returns the type and name of the next event, or an error when the stream has ended.
func (s *watchStream) nextEvent() (string, error) {
	var event struct {
		Type   string
		Object metav1.PartialObjectMetadata
	}
	if err := s.decoder.Decode(&event); err != nil {
		return "", err
	}
	return event.Type + " " + event.Object.Name, nil
}

// waitForEvent reads events until the wanted one.
func (s *watchStream) waitForEvent(t *testing.T, wanted string) {
	t.Helper()
	for {
		got, err := s.nextEvent()
		if err != nil {
			t.Fatalf("waiting for %q: %v", wanted, err)
		}
		if got == wanted {
			return
		}
	}
}

// waitForEnd reads events until the stream ends.
func (s *watchStream) waitForEnd() {
	for {
		if _, err := s.nextEvent(); err != nil {
			return
		}
	}
}
