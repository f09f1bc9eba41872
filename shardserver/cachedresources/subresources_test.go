package cachedresources_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

const (
	machinesPath = "/apis/example.com/v1/namespaces/default/machines"
	consolePath  = machinesPath + "/own/console"
)

func subresourceEntry(name, slice string) apisv1alpha2.ResourceSchema {
	_, subresource, _ := strings.Cut(name, "/")
	return apisv1alpha2.ResourceSchema{
		Name: name, Group: "example.com", Schema: "v1." + subresource + ".example.com",
		Storage: apisv1alpha2.ResourceSchemaStorage{Virtual: &apisv1alpha2.ResourceSchemaStorageVirtual{
			Reference: corev1.TypedLocalObjectReference{APIGroup: ptr.To("example.com"), Kind: "Backend", Name: slice},
		}},
	}
}

// createBackendObject creates the kind of the endpoint slice of custom subresources, and one with an address.
func (s *shardedEnv) createBackendObject(t *testing.T, name, address string) {
	t.Helper()
	definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "backends.example.com"}, Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Group: "example.com", Scope: apiextensionsv1.ClusterScoped,
		Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "backends", Singular: "backend", Kind: "Backend", ListKind: "BackendList"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{
			OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)},
		}}},
	}}
	ctx := shardtesting.In(t.Context(), s.provider)
	if err := client.IgnoreAlreadyExists(s.c.Create(ctx, definition)); err != nil {
		t.Fatal(err)
	}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Backend", "metadata": map[string]any{"name": name},
		"status": map[string]any{"endpoints": []any{map[string]any{"url": address, "shards": map[string]any{"matchAll": true}}}},
	}}
	backends := s.dynamicClient(t, s.shard.Admin(t), "/clusters/"+s.provider).Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "backends"})
	shardtesting.Eventually(t, "creating the endpoint slice", func(ctx context.Context) error {
		_, err := backends.Create(ctx, object, metav1.CreateOptions{})
		return err
	})
}

// testSubresources requests custom subresources of an export on alpha, whose consumer is on beta.
func (s *shardedEnv) testSubresources(t *testing.T) {
	s.createBackendObject(t, "shell", s.backend.URL+"/base/")
	ctx := shardtesting.In(t.Context(), s.provider)
	for _, kind := range []string{"Console", "Broken"} {
		if err := s.c.Create(ctx, shardtesting.NewSchema("v1", schema.GroupResource{Group: "example.com", Resource: strings.ToLower(kind)}, kind)); err != nil {
			t.Fatal(err)
		}
	}
	export := shardtesting.NewExport(t, s.c, s.provider, "machines", schema.GroupResource{Group: "example.com", Resource: "machines"}, "Machine", func(export *apisv1alpha2.APIExport) {
		export.Spec.Resources = append(export.Spec.Resources, subresourceEntry("machines/console", "shell"), subresourceEntry("machines/broken", "missing"))
	})
	bind(t, s.consumers, s.consumer, s.provider, "machines")
	path := "/clusters/" + s.consumer + consolePath
	s.waitForMachine(t)
	admin := s.consumers.Admin(t)
	shardtesting.Eventually(t, "discovery has the verbs of the backend", func(context.Context) error {
		if _, body := shardtesting.Send(t, admin, http.MethodGet, "/clusters/"+s.consumer+"/apis/example.com/v1", ""); !strings.Contains(body, `{"name":"machines/console","singularName":"","namespaced":true,"kind":"Console","verbs":["create","get"]}`) {
			return fmt.Errorf("%s", body)
		}
		return nil
	})

	t.Run("a request reaches the backend with the caller and nothing else of the client", func(t *testing.T) {
		response, body := shardtesting.Send(t, admin, http.MethodPost, path+"?size=1", `{"a":"b"}`, "X-Remote-Group", "system:masters", "X-Remote-Extra-A", "b", "Cookie", "a=b", "X-Other", "a", "X-Forwarded-For", "a")
		if response.StatusCode != http.StatusAccepted || response.Header.Get("Set-Cookie") != "" || response.Header.Get("X-Remote-User") != "" {
			t.Fatalf("%d %v: %s", response.StatusCode, response.Header, body)
		}
		var got shardtesting.ReceivedRequest
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Fatal(err)
		}
		if got.Path != "/base/clusters/"+s.consumer+consolePath || got.Query != "size=1" || got.Method != http.MethodPost || got.Body != `{"a":"b"}` {
			t.Errorf("the backend received %+v", got)
		}
		if groups := got.Header.Values("X-Remote-Group"); got.Header.Get("X-Remote-User") != "kcp-admin" || !slices.Contains(groups, "system:kcp:admin") || slices.Contains(groups, "system:masters") {
			t.Errorf("the backend received the identity %v", got.Header)
		}
		if got.Header.Get("X-Kcp-Virtual-Resource-Hops") != "1" {
			t.Errorf("the backend received the hops %v", got.Header)
		}
		if _, body := shardtesting.Send(t, s.consumers.Masters(t), http.MethodPost, path, ""); !strings.Contains(body, "X-Remote-User") || strings.Contains(body, "system:masters") {
			t.Errorf("the backend received %s", body)
		}
		for _, name := range []string{"Authorization", "Cookie", "X-Other", "X-Remote-Extra-A", "X-Forwarded-For"} {
			if got.Header.Get(name) != "" {
				t.Errorf("the backend received header %s", name)
			}
		}
	})
	t.Run("RBAC asks for the subresource and the verb of the method", func(t *testing.T) { s.testSubresourceAccess(t, path) })
	t.Run("what is not served", func(t *testing.T) {
		for name, tc := range map[string]struct {
			method, path string
			headers      []string
			code         int
			message      string
		}{
			"a subresource that the export does not have": {http.MethodGet, machinesPath + "/own/other", nil, http.StatusNotFound, ""},
			"a path below the subresource":                {http.MethodGet, consolePath + "/more", nil, http.StatusNotFound, ""},
			"a version that the schema does not have":     {http.MethodGet, strings.Replace(consolePath, "/v1/", "/v2/", 1), nil, http.StatusNotFound, ""},
			"another scope":               {http.MethodGet, "/apis/example.com/v1/machines/own/console", nil, http.StatusNotFound, ""},
			"a redirect of the backend":   {http.MethodGet, machinesPath + "/redirecting/console", nil, http.StatusBadGateway, "does not answer"},
			"too many hops":               {http.MethodGet, consolePath, []string{"X-Kcp-Virtual-Resource-Hops", "4"}, http.StatusInternalServerError, ""},
			"a slice that does not exist": {http.MethodGet, machinesPath + "/own/broken", nil, http.StatusInternalServerError, `Backend.example.com \"missing\"`},
		} {
			response, body := shardtesting.Send(t, admin, tc.method, "/clusters/"+s.consumer+tc.path, "", tc.headers...)
			if response.StatusCode != tc.code || !strings.Contains(body, tc.message) {
				t.Errorf("%s: %d: %s", name, response.StatusCode, body)
			}
		}
	})
	t.Run("the virtual workspace of an export that claims it", func(t *testing.T) { s.testClaimedSubresource(t, export.Status.IdentityHash) })
	t.Run("an upgraded connection ends when the export no longer has the subresource", func(t *testing.T) {
		connection := shardtesting.Upgrade(t, admin, path)
		shardtesting.Eventually(t, "removing the subresource", func(ctx context.Context) error {
			ctx = shardtesting.In(ctx, s.provider)
			if err := s.c.Get(ctx, client.ObjectKeyFromObject(export), export); err != nil {
				return err
			}
			export.Spec.Resources = slices.DeleteFunc(export.Spec.Resources, func(entry apisv1alpha2.ResourceSchema) bool { return entry.Name == "machines/console" })
			return s.c.Update(ctx, export)
		})
		connection.WaitForEnd(t)
	})
	t.Run("addresses follow the slice", func(t *testing.T) {
		s.createBackendObject(t, "missing", "https://127.0.0.1:1")
		shardtesting.Eventually(t, "the address is used", func(context.Context) error {
			if response, body := shardtesting.Send(t, admin, http.MethodGet, "/clusters/"+s.consumer+machinesPath+"/own/broken", ""); response.StatusCode != http.StatusBadGateway {
				return fmt.Errorf("%d: %s", response.StatusCode, body)
			}
			return nil
		})
	})
}

// testSubresourceWithoutBackends requests a custom subresource on a shard without the files for backends.
func (e *env) testSubresourceWithoutBackends(t *testing.T) {
	if err := e.c.Create(shardtesting.In(t.Context(), e.provider), shardtesting.NewSchema("v1", schema.GroupResource{Group: "example.com", Resource: "console"}, "Console")); err != nil {
		t.Fatal(err)
	}
	shardtesting.NewExport(t, e.c, e.provider, "machines", schema.GroupResource{Group: "example.com", Resource: "machines"}, "Machine", func(export *apisv1alpha2.APIExport) {
		export.Spec.Resources = append(export.Spec.Resources, subresourceEntry("machines/console", "shell"))
	})
	e.consumers.Bind(t, e.consumer, e.provider, "machines")
	e.waitForMachine(t)
	response, body := shardtesting.Send(t, e.consumers.Admin(t), http.MethodGet, "/clusters/"+e.consumer+consolePath, "")
	if response.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "not configured") {
		t.Errorf("%d: %s", response.StatusCode, body)
	}
}

// waitForMachine creates the machine "own" of the consumer.
func (e *env) waitForMachine(t *testing.T) {
	t.Helper()
	shardtesting.Eventually(t, "machines are served", func(context.Context) error {
		response, body := shardtesting.Send(t, e.consumers.Admin(t), http.MethodPost, "/clusters/"+e.consumer+machinesPath, `{"apiVersion":"example.com/v1","kind":"Machine","metadata":{"name":"own","labels":{"shown":"yes"}}}`)
		if response.StatusCode != http.StatusCreated && response.StatusCode != http.StatusConflict {
			return fmt.Errorf("%d: %s", response.StatusCode, body)
		}
		return nil
	})
}

func (s *shardedEnv) testSubresourceAccess(t *testing.T, path string) {
	user := rest.CopyConfig(s.consumers.Masters(t))
	user.Impersonate = rest.ImpersonationConfig{UserName: "operator", Groups: []string{"system:authenticated"}, Extra: map[string][]string{"example.com/team": {"a"}}}
	c, ctx := s.consumers.Client(t, s.consumers.Admin(t)), shardtesting.In(t.Context(), s.consumer)
	for _, object := range []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "operator"}, Rules: []rbacv1.PolicyRule{
			{Verbs: []string{"create"}, APIGroups: []string{"example.com"}, Resources: []string{"machines/console"}},
			{Verbs: []string{"*"}, APIGroups: []string{"example.com"}, Resources: []string{"machines"}},
			{Verbs: []string{"access"}, NonResourceURLs: []string{"/"}},
		}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "operator"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "operator"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "operator"}}},
	} {
		if err := c.Create(ctx, object); err != nil {
			t.Fatal(err)
		}
	}
	shardtesting.Eventually(t, "create is allowed", func(context.Context) error {
		response, body := shardtesting.Send(t, user, http.MethodPost, path, "")
		if response.StatusCode != http.StatusAccepted || !strings.Contains(body, `"X-Remote-User":["operator"]`) || !strings.Contains(body, `"X-Remote-Extra-Example.com%2fteam":["a"]`) {
			return fmt.Errorf("%d: %s", response.StatusCode, body)
		}
		return nil
	})
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete} {
		if response, body := shardtesting.Send(t, user, method, path, ""); response.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %d: %s", method, response.StatusCode, body)
		}
	}
}

// testClaimedSubresource requests the subresource at the view of an export that claims it.
func (s *shardedEnv) testClaimedSubresource(t *testing.T, identity string) {
	claim := func(resource string, verbs ...string) apisv1alpha2.PermissionClaim {
		return apisv1alpha2.PermissionClaim{GroupResource: apisv1alpha2.GroupResource{Group: "example.com", Resource: resource}, IdentityHash: identity, Verbs: verbs}
	}
	machines, console := claim("machines", "get", "list", "watch"), claim("machines/console", "create")
	claimer := s.createWorkspace(t, "claimer-of-subresources", s.root)
	shardtesting.NewExport(t, s.root.Client(t, s.root.Admin(t)), claimer, "operators", schema.GroupResource{Group: "operators.io", Resource: "operators"}, "Operator", func(export *apisv1alpha2.APIExport) {
		export.Spec.PermissionClaims = []apisv1alpha2.PermissionClaim{machines, console}
	})
	accept := func(selector apisv1alpha2.PermissionClaimSelector, claims ...apisv1alpha2.PermissionClaim) []apisv1alpha2.AcceptablePermissionClaim {
		var accepted []apisv1alpha2.AcceptablePermissionClaim
		for _, claim := range claims {
			accepted = append(accepted, apisv1alpha2.AcceptablePermissionClaim{PermissionClaim: claim, State: apisv1alpha2.ClaimAccepted, Selector: selector})
		}
		return accepted
	}
	labelled := apisv1alpha2.PermissionClaimSelector{LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"shown": "yes"}}}
	all := apisv1alpha2.PermissionClaimSelector{MatchAll: true}
	c := s.consumers.Client(t, s.consumers.Admin(t))
	binding := &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: "operators"}, Spec: apisv1alpha2.APIBindingSpec{
		Reference:        apisv1alpha2.BindingReference{Export: &apisv1alpha2.ExportBindingReference{Path: claimer, Name: "operators"}},
		PermissionClaims: accept(labelled, machines),
	}}
	shardtesting.Eventually(t, "binding operators", func(ctx context.Context) error {
		return client.IgnoreAlreadyExists(c.Create(shardtesting.In(ctx, s.consumer), binding))
	})
	view := "/services/apiexport/" + claimer + "/operators/clusters/" + s.consumer
	user := rest.CopyConfig(s.consumers.Masters(t))
	user.Impersonate = rest.ImpersonationConfig{UserName: "claimer", Groups: []string{"system:authenticated"}}
	rootClient, ctx := s.root.Client(t, s.root.Admin(t)), shardtesting.In(t.Context(), claimer)
	for _, object := range []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "content"}, Rules: []rbacv1.PolicyRule{
			{Verbs: []string{"*"}, APIGroups: []string{"apis.kcp.io"}, Resources: []string{"apiexports/content"}},
			{Verbs: []string{"access"}, NonResourceURLs: []string{"/"}},
		}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "content"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "content"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "claimer"}}},
	} {
		if err := rootClient.Create(ctx, object); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(code int, method, path, text string) {
		t.Helper()
		shardtesting.Eventually(t, fmt.Sprintf("%s %s is %d with %s", method, path, code, text), func(context.Context) error {
			if response, body := shardtesting.Send(t, user, method, view+path, ""); response.StatusCode != code || !strings.Contains(body, text) {
				return fmt.Errorf("%d: %s", response.StatusCode, body)
			}
			return nil
		})
	}
	expect(http.StatusOK, http.MethodGet, machinesPath+"/own", "")
	expect(http.StatusForbidden, http.MethodPost, consolePath, "")
	shardtesting.Eventually(t, "accepting the claim of the subresource", func(ctx context.Context) error {
		ctx = shardtesting.In(ctx, s.consumer)
		if err := c.Get(ctx, client.ObjectKeyFromObject(binding), binding); err != nil {
			return err
		}
		binding.Spec.PermissionClaims = append(accept(labelled, machines), accept(all, console)...)
		return c.Update(ctx, binding)
	})
	expect(http.StatusAccepted, http.MethodPost, consolePath, `"X-Remote-User":["claimer"]`)
	if _, body := shardtesting.Send(t, user, http.MethodPost, view+consolePath, ""); strings.Contains(strings.ToLower(body), "warrant") || !strings.Contains(body, "/base/clusters/"+s.consumer+consolePath) {
		t.Errorf("the backend received %s", body)
	}
	expect(http.StatusForbidden, http.MethodGet, consolePath, "") // not claimed
	expect(http.StatusOK, http.MethodGet, "/apis/example.com/v1", `{"name":"machines/console","singularName":"","namespaced":true,"kind":"Console","verbs":["create"]}`)
	expect(http.StatusNotFound, http.MethodPost, machinesPath+"/absent/console", "")
	connection := shardtesting.Upgrade(t, user, view+consolePath)
	shardtesting.Eventually(t, "rejecting the claim of the subresource", func(ctx context.Context) error {
		ctx = shardtesting.In(ctx, s.consumer)
		if err := c.Get(ctx, client.ObjectKeyFromObject(binding), binding); err != nil {
			return err
		}
		binding.Spec.PermissionClaims[1].State = apisv1alpha2.ClaimRejected
		return c.Update(ctx, binding)
	})
	connection.WaitForEnd(t)
	expect(http.StatusForbidden, http.MethodPost, consolePath, "")
	if response, body := shardtesting.Send(t, user, http.MethodPost, strings.Replace(view, s.consumer, s.provider, 1)+consolePath, ""); response.StatusCode != http.StatusForbidden {
		t.Errorf("in a workspace without the binding: %d: %s", response.StatusCode, body)
	}
}
