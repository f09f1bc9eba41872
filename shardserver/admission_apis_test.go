package shardserver_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

var widgets = schema.GroupResource{Group: "example.com", Resource: "widgets"}

// providerEnv is the shared shard with a workspace that exports widgets, and one in which alice is an administrator.
type providerEnv struct {
	*shardtesting.Shard
	parent             string // the path of the workspace in which these are "provider" and "consumer"
	provider, consumer string
	admin, alice       client.Client
}

func startProviderEnv(t *testing.T) *providerEnv {
	t.Helper()
	shard := sharedShard(t)
	name := strings.ToLower(t.Name())
	parent := shard.NewWorkspace(t, "root", name).Spec.Cluster
	p := &providerEnv{
		Shard:    shard,
		parent:   "root:" + name,
		provider: shard.NewWorkspace(t, parent, "provider").Spec.Cluster,
		consumer: shard.NewWorkspace(t, parent, "consumer").Spec.Cluster,
		admin:    shard.Client(t, shard.Masters(t)),
	}
	as := shard.Masters(t)
	as.Impersonate = rest.ImpersonationConfig{UserName: "alice", Groups: []string{"system:authenticated"}}
	p.alice = shard.Client(t, as)
	p.create(t, p.consumer, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "alice"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "alice"}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
	})
	p.create(t, p.provider, shardtesting.NewSchema("v1", widgets, "Widget"))
	p.create(t, p.provider, &apisv1alpha2.APIExport{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets"},
		Spec: apisv1alpha2.APIExportSpec{Resources: []apisv1alpha2.ResourceSchema{{
			Name: widgets.Resource, Group: widgets.Group, Schema: "v1.widgets.example.com",
		}}},
	})
	return p
}

func (p *providerEnv) create(t *testing.T, cluster string, obj client.Object) {
	t.Helper()
	if err := p.admin.Create(shardtesting.In(t.Context(), cluster), obj); err != nil {
		t.Fatalf("creating %T %s: %v", obj, obj.GetName(), err)
	}
}

// allowBind lets alice bind an export of the provider, in whose workspace she has no other permission.
func (p *providerEnv) allowBind(t *testing.T, export string) {
	t.Helper()
	p.create(t, p.provider, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "bind-" + export},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{apisv1alpha2.GroupName}, Resources: []string{"apiexports"}, ResourceNames: []string{export}, Verbs: []string{apisv1alpha2.VerbBind}}},
	})
	p.create(t, p.provider, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "bind-" + export},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "alice"}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "bind-" + export},
	})
}

func newBinding(name, path, export string) *apisv1alpha2.APIBinding {
	return &apisv1alpha2.APIBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       apisv1alpha2.APIBindingSpec{Reference: apisv1alpha2.BindingReference{Export: &apisv1alpha2.ExportBindingReference{Path: path, Name: export}}},
	}
}

func wantForbidden(t *testing.T, err error, wantErr string) {
	t.Helper()
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), wantErr) {
		t.Errorf("want 403 with %q, got %v", wantErr, err)
	}
}

func TestAPIBindingServer(t *testing.T) {
	p := startProviderEnv(t)
	in := shardtesting.In(t.Context(), p.consumer)

	// Alice may not bind, and the error does not disclose whether the export exists.
	before := p.alice.Create(in, newBinding("w", p.parent+":provider", "widgets"))
	wantForbidden(t, before, "no permission to bind to export "+p.parent+":provider:widgets")
	missing := p.alice.Create(in, newBinding("w", p.parent+":provider", "nothing"))
	wantForbidden(t, missing, "no permission to bind to export "+p.parent+":provider:nothing")
	if strings.ReplaceAll(before.Error(), "widgets", "x") != strings.ReplaceAll(missing.Error(), "nothing", "x") {
		t.Errorf("the errors for a forbidden and for a missing export differ: %v; %v", before, missing)
	}
	wantForbidden(t, p.alice.Create(in, newBinding("w", "root:gone", "widgets")), "no permission to bind to export root:gone:widgets")

	p.allowBind(t, "widgets")
	bound := newBinding("w", p.parent+":provider", "widgets")
	bound.Labels = map[string]string{apisv1alpha2.ExportLabelKey: "forged"}
	shardtesting.Eventually(t, "alice to be allowed to bind widgets", func(ctx context.Context) error {
		return p.alice.Create(shardtesting.In(ctx, p.consumer), bound)
	})
	_, label := apiindex.ExportLabel(bindings.ExportKey{Cluster: logicalcluster.MustParseName(p.provider), Name: "widgets"})
	if bound.Labels[apisv1alpha2.ExportLabelKey] != label || bound.Annotations[logicalcluster.PathAnnotationKey] != p.parent+":consumer" ||
		!slices.Contains(bound.Finalizers, apisv1alpha2.APIBindingFinalizer) {
		t.Errorf("got %+v", bound.ObjectMeta)
	}

	// System labels and the reference are immutable, the status is written by the server only.
	for name, tc := range map[string]struct {
		patch   string
		refused func(error) bool
	}{
		"removed finalizer is restored": {`{"metadata":{"finalizers":null,"labels":{"internal.apis.kcp.io/export":"other"}}}`, nil},
		"another export":                {`{"spec":{"reference":{"export":{"name":"other"}}}}`, isForbiddenOrInvalid},
		"another path":                  {`{"spec":{"reference":{"export":{"path":"` + p.provider + `"}}}}`, apierrors.IsInvalid},
		"an unknown deletion policy":    {`{"spec":{"deletionPolicy":"Orphan"}}`, apierrors.IsInvalid},
		"a deletion policy":             {`{"spec":{"deletionPolicy":"WaitForSuccessor"}}`, nil},
		"a claim of a token":            {`{"spec":{"permissionClaims":[{"resource":"serviceaccounts/token","verbs":["create"],"state":"Accepted","selector":{}}]}}`, nil},
		"a claim of a token by labels":  {`{"spec":{"permissionClaims":[{"resource":"configmaps/status","verbs":["create"],"state":"Accepted","selector":{"matchLabels":{"a":"b"}}}]}}`, apierrors.IsForbidden},
		"claim without a selector":      {`{"spec":{"permissionClaims":[{"resource":"secrets","verbs":["*"],"state":"Accepted","selector":{}}]}}`, apierrors.IsForbidden},
	} {
		patched := newBinding("w", "", "")
		err := p.alice.Patch(in, patched, client.RawPatch(types.MergePatchType, []byte(tc.patch)))
		if (tc.refused == nil) != (err == nil) || (tc.refused != nil && !tc.refused(err)) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil && (!slices.Contains(patched.Finalizers, apisv1alpha2.APIBindingFinalizer) || patched.Labels[apisv1alpha2.ExportLabelKey] != label) {
			t.Errorf("%s: %+v", name, patched.ObjectMeta)
		}
	}
	selecting := func(value string) error {
		return p.alice.Patch(in, newBinding("w", "", ""), client.RawPatch(types.MergePatchType, []byte(
			`{"spec":{"permissionClaims":[{"resource":"secrets","verbs":["*"],"state":"Rejected","selector":{"matchLabels":{"a":"`+value+`"}}}]}}`)))
	}
	if err := selecting("b"); err != nil {
		t.Error(err)
	}
	if err := selecting("c"); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.permissionClaims[0].selector") || !strings.Contains(err.Error(), "Permission claim selector is immutable") {
		t.Errorf("another selector: %v", err)
	}
	testAppliedSelector(t, p)
	status := client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Bound"}}`))
	wantForbidden(t, p.alice.Status().Patch(in, newBinding("w", "", ""), status), "")
	export := &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "own"}}
	if err := p.alice.Create(in, export); err != nil {
		t.Fatal(err)
	}
	wantForbidden(t, p.alice.Status().Patch(in, export, client.RawPatch(types.MergePatchType, []byte(`{"status":{"identityHash":"forged"}}`))), "")
}

// testAppliedSelector changes the selector of an applied claim of a binding without an export, which no controller changes.
func testAppliedSelector(t *testing.T, p *providerEnv) {
	in := shardtesting.In(t.Context(), p.provider)
	binding := &apisv1alpha2.APIBinding{ObjectMeta: metav1.ObjectMeta{Name: "without-export"}}
	if err := p.admin.Create(in, binding); err != nil {
		t.Fatal(err)
	}
	apply := func(selector string) error {
		return p.admin.Status().Patch(in, binding, client.RawPatch(types.MergePatchType, []byte(
			`{"status":{"appliedPermissionClaims":[{"resource":"secrets","verbs":["*"],"selector":`+selector+`}]}}`)))
	}
	if err := apply(`{"matchLabels":{"a":"b"}}`); err != nil {
		t.Error(err)
	}
	err := apply(`{"matchLabels":{"a":"c"}}`)
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "status.appliedPermissionClaims[0].selector") || !strings.Contains(err.Error(), "Permission claim selector is immutable") {
		t.Errorf("another selector: %v", err)
	}
	if err := p.admin.Status().Patch(in, binding, client.RawPatch(types.MergePatchType, []byte(`{"status":{"appliedPermissionClaims":null}}`))); err != nil {
		t.Error(err)
	}
	if err := apply(`{"matchLabels":{"a":"c"}}`); err != nil {
		t.Error(err)
	}
}

func TestAPIGroupStorageAndDiscovery(t *testing.T) {
	p := startProviderEnv(t)
	in := shardtesting.In(t.Context(), p.provider)
	// A v1alpha1 client writes an object that is stored as v1alpha2.
	old := &apisv1alpha1.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "old"}, Spec: apisv1alpha1.APIExportSpec{LatestResourceSchemas: []string{"v1.widgets.example.com"}}}
	if err := p.admin.Create(in, old); err != nil {
		t.Fatal(err)
	}
	stored := map[string]string{
		"apiexports/customresources/" + p.provider + "/old":                            `"apiVersion":"apis.kcp.io/v1alpha2"`,
		"apiresourceschemas/customresources/" + p.provider + "/v1.widgets.example.com": `"apiVersion":"apis.kcp.io/v1alpha1"`,
	}
	for key, content := range p.Stored(t) {
		for suffix, want := range stored {
			if strings.HasSuffix(key, "/apis.kcp.io/"+suffix) {
				delete(stored, suffix)
				if !strings.Contains(string(content), want) {
					t.Errorf("%s: %s", key, content)
				}
			}
		}
	}
	if len(stored) > 0 {
		t.Errorf("not found: %v", stored)
	}

	discovery := p.Kubernetes(t, shardtesting.At(p.Masters(t), p.consumer)).Discovery()
	groups, err := discovery.ServerGroups()
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(groups.Groups, func(group metav1.APIGroup) bool { return group.Name == apisv1alpha2.GroupName })
	if at < 0 || groups.Groups[at].PreferredVersion.Version != "v1alpha2" || len(groups.Groups[at].Versions) != 2 {
		t.Fatalf("groups %+v", groups.Groups)
	}
	for version, want := range map[string]string{
		"v1alpha1": "apibindings apibindings/status apiconversions apiexportendpointslices apiexportendpointslices/status apiexports apiexports/status apiresourceschemas",
		"v1alpha2": "apibindings apibindings/status apiexports apiexports/status",
	} {
		resources, err := discovery.ServerResourcesForGroupVersion(apisv1alpha2.GroupName + "/" + version)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, resource := range resources.APIResources {
			names = append(names, resource.Name)
		}
		slices.Sort(names)
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: %s", version, got)
		}
	}
}

func isForbiddenOrInvalid(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err)
}

func TestAPIObjectsServer(t *testing.T) {
	p := startProviderEnv(t)
	in := shardtesting.In(t.Context(), p.consumer)

	misnamed := shardtesting.NewSchema("v1", widgets, "Widget")
	misnamed.Name = "v1.gadgets.example.com"
	wantForbidden(t, p.alice.Create(in, misnamed), "must end in .widgets.example.com")
	kept := shardtesting.NewSchema("v1", widgets, "Widget")
	if err := p.alice.Create(in, kept); err != nil {
		t.Fatal(err)
	}
	wantForbidden(t, p.alice.Patch(in, kept, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"scope":"Cluster"}}`))), "is immutable")

	claiming := &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "claiming"}, Spec: apisv1alpha2.APIExportSpec{
		PermissionClaims: []apisv1alpha2.PermissionClaim{{GroupResource: apisv1alpha2.GroupResource{Group: "example.com", Resource: "widgets"}, Verbs: []string{"get"}}},
	}}
	wantForbidden(t, p.alice.Create(in, claiming), `spec.permissionClaims[0].identityHash: Invalid value: "": identityHash is required for API types that are not built-in`)

	old := &apisv1alpha1.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "old", Annotations: map[string]string{apisv1alpha2.PermissionClaimsAnnotationKey: "nonsense"}}}
	wantForbidden(t, p.alice.Create(in, old), "apis.v1alpha2.kcp.io/permission-claims cannot be used")

	slice := func(path, name string) *apisv1alpha1.APIExportEndpointSlice {
		return &apisv1alpha1.APIExportEndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: apisv1alpha1.APIExportEndpointSliceSpec{
			APIExport: apisv1alpha1.ExportBindingReference{Path: path, Name: name},
		}}
	}
	wantForbidden(t, p.alice.Create(in, slice(p.parent+":provider", "widgets")), "no permission to bind to export "+p.parent+":provider:widgets")
	p.allowBind(t, "widgets")
	shardtesting.Eventually(t, "alice to be allowed to create the slice", func(ctx context.Context) error {
		return p.alice.Create(shardtesting.In(ctx, p.consumer), slice(p.parent+":provider", "widgets"))
	})
}

// TestServedKinds changes scope and kind of what an export offers in every way that a provider has.
func TestServedKinds(t *testing.T) {
	p := startProviderEnv(t)
	in := shardtesting.In(t.Context(), p.provider)
	const recorded = `{"widgets.example.com":{"scope":"Namespaced","kind":"Widget"}}`
	export := &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "widgets"}}
	expectRecord := func(want string) {
		t.Helper()
		shardtesting.Eventually(t, "the record of "+export.Name, func(context.Context) error {
			if err := p.admin.Get(in, client.ObjectKeyFromObject(export), export); err != nil {
				return err
			}
			if got := export.Annotations[apisv1alpha2.ServedKindsAnnotationKey]; got != want {
				return fmt.Errorf("got %q, want %q", got, want)
			}
			return nil
		})
	}
	expectRecord(recorded)
	schemaWith := func(prefix string, scope apiextensionsv1.ResourceScope, kind string) *apisv1alpha1.APIResourceSchema {
		schema := shardtesting.NewSchema(prefix, widgets, kind)
		schema.Spec.Scope = scope
		return schema
	}
	p.create(t, p.provider, schemaWith("cluster", apiextensionsv1.ClusterScoped, "Widget"))
	p.create(t, p.provider, schemaWith("kind", apiextensionsv1.NamespaceScoped, "Gadget"))
	p.create(t, p.provider, schemaWith("same", apiextensionsv1.NamespaceScoped, "Widget"))
	patch := func(text string) error {
		return p.admin.Patch(in, &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "widgets"}}, client.RawPatch(types.MergePatchType, []byte(text)))
	}
	offering := func(prefix string) string {
		return `{"metadata":{"annotations":{"` + apisv1alpha2.ServedKindsAnnotationKey + `":null}},"spec":{"resources":[{"name":"widgets","group":"example.com","schema":"` + prefix + `.widgets.example.com"}]}}`
	}
	refuseAll := func() {
		t.Helper()
		wantForbidden(t, patch(offering("cluster")), `spec.resources[0].schema: Invalid value: "cluster.widgets.example.com": widgets.example.com cannot be served with scope Cluster`)
		wantForbidden(t, patch(offering("kind")), "widgets.example.com cannot be served with kind Gadget")
		old := &apisv1alpha1.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "widgets"}}
		wantForbidden(t, p.admin.Patch(in, old, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"latestResourceSchemas":["cluster.widgets.example.com"]}}`))), "cannot be served with scope Cluster")
	}
	refuseAll()
	for _, text := range []string{offering("same"), `{"metadata":{"annotations":{"` + apisv1alpha2.ServedKindsAnnotationKey + `":"{}"}}}`, `{"spec":{"resources":null}}`} {
		if err := patch(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		expectRecord(recorded)
	}
	refuseAll() // what is offered no longer stays bound
	if err := patch(offering("v1")); err != nil {
		t.Fatal(err)
	}

	// A schema cannot be replaced by one of the other scope while an export names it.
	if err := p.admin.Delete(in, schemaWith("v1", "", "Widget")); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the schema is gone and cannot come back with another scope", func(context.Context) error {
		err := p.admin.Create(in, schemaWith("v1", apiextensionsv1.ClusterScoped, "Widget"))
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `spec.scope: Forbidden: APIExport widgets: widgets.example.com cannot be served with scope Cluster`) {
			return fmt.Errorf("got %w", errors.Join(errors.New("no such refusal"), err))
		}
		return nil
	})
	p.create(t, p.provider, schemaWith("v1", apiextensionsv1.NamespaceScoped, "Widget"))

	// An export may be created before its schema, with any scope.
	export = &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "early"}, Spec: apisv1alpha2.APIExportSpec{
		Resources: []apisv1alpha2.ResourceSchema{{Name: widgets.Resource, Group: widgets.Group, Schema: "early.widgets.example.com"}},
	}}
	p.create(t, p.provider, export)
	p.create(t, p.provider, schemaWith("early", apiextensionsv1.ClusterScoped, "Widget"))
	expectRecord(`{"widgets.example.com":{"scope":"Cluster","kind":"Widget"}}`)
}

func TestCRDConflictsWithBinding(t *testing.T) {
	shard := shardtesting.Start(t, func(o *options.Options) { o.Admission.Enable = []string{"apis.kcp.io/CRDNoOverlappingGVR"} })
	provider := shard.NewWorkspace(t, "root", "provider").Spec.Cluster
	consumer := shard.NewWorkspace(t, "root", "consumer").Spec.Cluster
	shard.NewExport(t, provider, "widgets", widgets, "Widget")
	shard.Bind(t, consumer, provider, "widgets")

	c, in := shard.Client(t, shard.Admin(t)), shardtesting.In(t.Context(), consumer)
	definition := func(plural, kind string) *apiextensionsv1.CustomResourceDefinition {
		return &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: plural + ".example.com"},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: "example.com", Scope: apiextensionsv1.ClusterScoped,
				Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: kind},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
					Name: "v1", Served: true, Storage: true,
					Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
				}},
			},
		}
	}
	wantForbidden(t, c.Create(in, definition("widgets", "Widget")), `bound by APIBinding "widgets"`)
	if err := c.Create(in, definition("gadgets", "Gadget")); err != nil {
		t.Fatal(err)
	}
	cluster := &corev1alpha1.LogicalCluster{}
	if err := c.Get(in, client.ObjectKey{Name: corev1alpha1.LogicalClusterName}, cluster); err != nil {
		t.Fatal(err)
	}
	if locks := cluster.Annotations[corev1alpha1.ResourceBindingsAnnotationKey]; !strings.Contains(locks, `"gadgets.example.com":{"c":true`) || !strings.Contains(locks, `"widgets.example.com":{"n":"widgets"}`) {
		t.Errorf("reservations %s", locks)
	}
}
