package apiexport

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/request"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

var (
	provider = logicalcluster.MustParseName("provider")
	owner    = logicalcluster.MustParseName("owner")
	widgets  = schema.GroupResource{Group: "example.com", Resource: "widgets"}
	gizmos   = schema.GroupResource{Group: "example.com", Resource: "gizmos"}
)

func newClaim(gr schema.GroupResource, identity string, verbs ...string) apisv1alpha2.PermissionClaim {
	return apisv1alpha2.PermissionClaim{GroupResource: apisv1alpha2.GroupResource{Group: gr.Group, Resource: gr.Resource}, IdentityHash: identity, Verbs: verbs}
}

func TestBindsExport(t *testing.T) {
	export := bindings.ExportKey{Cluster: provider, Name: "widgets"}
	for name, tc := range map[string]struct {
		path, name, bound string
		want              bool
	}{
		"a resolved reference":                                      {"root:org:provider", "widgets", "provider", true},
		"a reference to another export":                             {"root:org:provider", "gadgets", "provider", false},
		"resolved to an export of the same name in another cluster": {"root:org:provider", "widgets", "other", false},
		"a reference by cluster name, not resolved yet":             {"provider", "widgets", "", true},
		"a reference by path, not resolved yet":                     {"root:org:provider", "widgets", "", false},
		"a reference to its own cluster, not resolved yet":          {"", "widgets", "", false},
		"the resolved export takes precedence over the reference":   {"provider", "widgets", "other", false},
	} {
		t.Run(name, func(t *testing.T) {
			binding := &apisv1alpha2.APIBinding{Spec: apisv1alpha2.APIBindingSpec{Reference: apisv1alpha2.BindingReference{
				Export: &apisv1alpha2.ExportBindingReference{Path: tc.path, Name: tc.name}}}, Status: apisv1alpha2.APIBindingStatus{APIExportClusterName: tc.bound}}
			if got := bindsExport(binding, export); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
	if bindsExport(&apisv1alpha2.APIBinding{}, export) {
		t.Error("a binding without reference binds the export")
	}
}

func TestCheckBinding(t *testing.T) {
	configMaps := schema.GroupResource{Resource: "configmaps"}
	own := &apiResource{GroupResource: widgets, identity: "identity", verbs: allVerbs}
	claimed := func(claim apisv1alpha2.PermissionClaim) *apiResource {
		return &apiResource{GroupResource: schema.GroupResource{Group: claim.Group, Resource: claim.Resource}, identity: claim.IdentityHash, claim: &claim, verbs: allVerbs}
	}
	binding := &apisv1alpha2.APIBinding{}
	binding.Status.BoundResources = []apisv1alpha2.BoundAPIResource{{Group: widgets.Group, Resource: widgets.Resource, Schema: apisv1alpha2.BoundAPIResourceSchema{IdentityHash: "identity"}}}
	addClaim := func(state apisv1alpha2.AcceptablePermissionClaimState, claim apisv1alpha2.PermissionClaim) {
		binding.Spec.PermissionClaims = append(binding.Spec.PermissionClaims, apisv1alpha2.AcceptablePermissionClaim{PermissionClaim: claim, State: state})
	}
	addClaim(apisv1alpha2.ClaimAccepted, newClaim(configMaps, "", "get", "list", "*"))
	addClaim(apisv1alpha2.ClaimRejected, newClaim(schema.GroupResource{Resource: "secrets"}, "", "*"))
	addClaim(apisv1alpha2.ClaimAccepted, newClaim(gizmos, "theirs", "*"))
	addClaim(apisv1alpha2.ClaimAccepted, newClaim(coreEvents, "", "list"))
	for name, tc := range map[string]struct {
		offered *apiResource
		verb    string
		want    bool
	}{
		"all verbs on a bound resource":                             {own, "deletecollection", true},
		"a bound resource with another identity":                    {&apiResource{GroupResource: widgets, identity: "other", verbs: allVerbs}, "get", false},
		"a resource that is not bound":                              {&apiResource{GroupResource: gizmos, identity: "identity", verbs: allVerbs}, "get", false},
		"a verb of both sides":                                      {claimed(newClaim(configMaps, "", "get", "watch")), "get", true},
		"a verb of the export only":                                 {claimed(newClaim(configMaps, "", "get", "watch")), "watch", false},
		"a verb of the consumer only":                               {claimed(newClaim(configMaps, "", "get", "watch")), "list", false},
		"the verb * on one side":                                    {claimed(newClaim(configMaps, "", "update")), "update", false},
		"the verb * on both sides":                                  {claimed(newClaim(configMaps, "", "*")), "update", true},
		"a rejected claim":                                          {claimed(newClaim(schema.GroupResource{Resource: "secrets"}, "", "*")), "get", false},
		"a claim that is neither accepted nor rejected":             {claimed(newClaim(schema.GroupResource{Resource: "serviceaccounts"}, "", "*")), "get", false},
		"the accepted identity":                                     {claimed(newClaim(gizmos, "theirs", "*")), "get", true},
		"another identity":                                          {claimed(newClaim(gizmos, "another", "*")), "get", false},
		"a claim without identity does not match a claim with one":  {claimed(newClaim(gizmos, "", "*")), "get", false},
		"events by a claim on either group":                         {claimed(newClaim(newEvents, "", "list")), "list", true},
		"reading the binding":                                       {&apiResource{GroupResource: apiBindings, verbs: readVerbs}, "watch", true},
		"updating the binding":                                      {&apiResource{GroupResource: apiBindings, verbs: readVerbs}, "update", false},
		"reading the binding without an accepted claim on bindings": {claimed(newClaim(apiBindings, "", "*")), "list", true},
		"deleting bindings without an accepted claim":               {claimed(newClaim(apiBindings, "", "*")), "delete", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := checkBinding(binding, tc.offered, tc.verb, ""); got.allowed != tc.want {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestCheckSubresource(t *testing.T) {
	accounts, token := schema.GroupResource{Resource: "serviceaccounts"}, schema.GroupResource{Resource: "serviceaccounts/token"}
	type claims = []apisv1alpha2.PermissionClaim
	for name, tc := range map[string]struct {
		accepted claims
		verb     string
		want     bool
	}{
		"both claims":                               {claims{newClaim(accounts, "", "get"), newClaim(token, "", "create")}, "create", true},
		"without the claim of the resource":         {claims{newClaim(token, "", "create")}, "create", false},
		"the claim of the resource without get":     {claims{newClaim(accounts, "", "list"), newClaim(token, "", "create")}, "create", false},
		"without the claim of the subresource":      {claims{newClaim(accounts, "", "get", "create", "update")}, "create", false},
		"a verb that the subresource's claim lacks": {claims{newClaim(accounts, "", "get", "update"), newClaim(token, "", "create")}, "update", false},
	} {
		t.Run(name, func(t *testing.T) {
			parent, sub := newClaim(accounts, "", "get", "list", "create", "update"), newClaim(token, "", "create")
			found := &apiResource{GroupResource: accounts, claim: &parent, subresources: map[string]*apisv1alpha2.PermissionClaim{"token": &sub}}
			binding := &apisv1alpha2.APIBinding{}
			for _, claim := range tc.accepted {
				binding.Spec.PermissionClaims = append(binding.Spec.PermissionClaims, apisv1alpha2.AcceptablePermissionClaim{PermissionClaim: claim, State: apisv1alpha2.ClaimAccepted})
			}
			if got := checkBinding(binding, found, tc.verb, "token"); got.allowed != tc.want {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// fakeExports contains exports and schemas by name.
type fakeExports struct {
	exports []*apisv1alpha2.APIExport
	schemas sets.Set[string] // "<cluster>/<name>"
}

func (e fakeExports) Get(_ context.Context, export bindings.ExportKey) (*apisv1alpha2.APIExport, error) {
	for _, candidate := range e.exports {
		if logicalcluster.Of(candidate) == export.Cluster && candidate.Name == export.Name {
			return candidate, nil
		}
	}
	return nil, apierrors.NewNotFound(apisv1alpha2.Resource("apiexports"), export.Name)
}

func (e fakeExports) ListByIdentity(_ context.Context, hash string) ([]*apisv1alpha2.APIExport, error) {
	var found []*apisv1alpha2.APIExport
	for _, candidate := range e.exports {
		if candidate.Status.IdentityHash == hash {
			found = append(found, candidate)
		}
	}
	return found, nil
}

func (e fakeExports) GetSchema(_ context.Context, cluster logicalcluster.Name, name string) (*apisv1alpha1.APIResourceSchema, error) {
	if !e.schemas.Has(cluster.String() + "/" + name) {
		return nil, apierrors.NewNotFound(apisv1alpha1.Resource("apiresourceschemas"), name)
	}
	return &apisv1alpha1.APIResourceSchema{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{logicalcluster.AnnotationKey: cluster.String()}}}, nil
}

func newExport(cluster logicalcluster.Name, name, identity string, resources ...schema.GroupResource) *apisv1alpha2.APIExport {
	export := &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{logicalcluster.AnnotationKey: cluster.String()}}}
	export.Status.IdentityHash = identity
	for _, gr := range resources {
		export.Spec.Resources = append(export.Spec.Resources, apisv1alpha2.ResourceSchema{Group: gr.Group, Name: gr.Resource, Schema: "v1." + gr.String()})
	}
	return export
}

func TestAPISet(t *testing.T) {
	export := newExport(provider, "widgets", "own", widgets, schema.GroupResource{Group: "example.com", Resource: "unknowns"})
	export.Spec.PermissionClaims = []apisv1alpha2.PermissionClaim{
		newClaim(widgets, "theirs", "*"), newClaim(gizmos, "theirs", "*"), newClaim(schema.GroupResource{Group: "example.com", Resource: "gadgets"}, "unknown", "*"),
		newClaim(schema.GroupResource{Resource: "configmaps"}, "", "*"), newClaim(newEvents, "", "*"), newClaim(schema.GroupResource{Resource: "pods"}, "", "*"),
		newClaim(apisv1alpha2.Resource("apiexportendpointslices"), "", "*"), newClaim(apisv1alpha2.Resource("apiexports"), "", "*"),
	}
	all := fakeExports{
		exports: []*apisv1alpha2.APIExport{export, newExport(owner, "bare", "theirs"), newExport(owner, "gizmos", "theirs", gizmos, widgets)},
		schemas: sets.New("provider/v1.widgets.example.com", "owner/v1.gizmos.example.com", "owner/v1.widgets.example.com"),
	}
	set := &apiSet{
		exports: all, name: bindings.ExportKey{Cluster: provider, Name: "widgets"}, export: export,
		identities: identityResolver{bound: bindings.NewIndex(storage.NewRegistry(storage.Locality{}))},
	}
	want := map[string]string{
		"widgets.example.com":     "own provider",
		"gizmos.example.com":      "theirs owner",
		"configmaps":              "",
		"events":                  "",
		"events.events.k8s.io":    "",
		"apibindings.apis.kcp.io": "read",
		"apiexports.apis.kcp.io":  "",
	}
	offers, err := set.list(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	describe := func(o *apiResource) string {
		switch {
		case o.claim == nil && o.identity == "":
			return "read"
		case o.schema != nil:
			return o.identity + " " + logicalcluster.Of(o.schema).String()
		}
		return o.identity
	}
	for _, o := range offers {
		wanted, known := want[o.GroupResource.String()]
		if got := describe(o); !known || got != wanted {
			t.Errorf("%s is offered as %q, want %q", o.GroupResource, got, wanted)
		}
		single, err := set.find(t.Context(), o.GroupResource)
		if err != nil || single == nil || describe(single) != describe(o) {
			t.Errorf("%s alone is %+v, %v", o.GroupResource, single, err)
		}
	}
	if len(offers) != len(want) {
		t.Errorf("%d resources are offered, want %d", len(offers), len(want))
	}
	for _, gr := range []schema.GroupResource{{Resource: "pods"}, {Resource: "secrets"}, {Group: "example.com", Resource: "gadgets"}, {Group: "example.com", Resource: "unknowns"}, apisv1alpha2.Resource("apiexportendpointslices")} {
		if found, err := set.find(t.Context(), gr); found != nil || err != nil {
			t.Errorf("%s is offered: %+v, %v", gr, found, err)
		}
	}
	withoutExport := &apiSet{exports: all, name: set.name}
	if offers, err := withoutExport.list(t.Context()); len(offers) > 0 || err != nil {
		t.Errorf("without an export: %v, %v", offers, err)
	}
}

func TestForwardedPaths(t *testing.T) {
	factory := &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	for path, want := range map[string]string{
		"/apis/g/v1/widgets":                           "/apis/g/v1/widgets:id",
		"/apis/g/v1/widgets/":                          "/apis/g/v1/widgets:id",
		"/apis/g/v1/widgets/widgets":                   "/apis/g/v1/widgets:id/widgets",
		"/apis/g/v1/namespaces/widgets/widgets/a":      "/apis/g/v1/namespaces/widgets/widgets:id/a",
		"/apis/g/v1/namespaces/n/widgets/a/status":     "/apis/g/v1/namespaces/n/widgets:id/a/status",
		"/apis/widgets/v1/widgets":                     "/apis/widgets/v1/widgets:id",
		"/apis/g/v1/watch/namespaces/n/widgets":        "/apis/g/v1/watch/namespaces/n/widgets:id",
		"/apis/g/v1/namespaces/n/widgets/a%20b/status": "/apis/g/v1/namespaces/n/widgets:id/a b/status",
	} {
		t.Run(path, func(t *testing.T) {
			req := httptest.NewRequest(http.MethodGet, path, nil)
			info, err := factory.NewRequestInfo(req)
			if err != nil {
				t.Fatal(err)
			}
			got, err := withResource(req, info, "widgets:id")
			if err != nil || got.URL.Path != want {
				t.Fatalf("got %v, %v, want %s", got, err, want)
			}
			renamed, _ := request.RequestInfoFrom(got.Context())
			if renamed.Resource != "widgets:id" || renamed.Name != info.Name || info.Resource != "widgets" {
				t.Errorf("the request info is %+v", renamed)
			}
		})
	}
}

func TestWithLabelRequirements(t *testing.T) {
	for query, want := range map[string]string{
		"":                                "key in (a,b)",
		"labelSelector=x%3Dy&limit=3":     "key in (a,b),x=y",
		"labelSelector=key%3Dother":       "key=other,key in (a,b)",
		"labelSelector=a&labelSelector=b": "a,key in (a,b)",
	} {
		got, err := withLabel(httptest.NewRequest(http.MethodGet, "/x?"+query, nil), "key", []string{"a", "b"})
		if err != nil {
			t.Fatal(err)
		}
		values, _ := url.ParseQuery(got.URL.RawQuery)
		if len(values["labelSelector"]) != 1 || !slices.Equal(splitSelector(values.Get("labelSelector")), splitSelector(want)) || strings.Contains(query, "limit") != values.Has("limit") {
			t.Errorf("query %q is converted to %q", query, got.URL.RawQuery)
		}
	}
	if _, err := withLabel(httptest.NewRequest(http.MethodGet, "/x?labelSelector=!!", nil), "key", []string{"a"}); !apierrors.IsBadRequest(err) {
		t.Errorf("an invalid selector: %v", err)
	}
}

// splitSelector returns the requirements of a selector, independent of their order.
func splitSelector(selector string) []string {
	found := strings.Split(strings.ReplaceAll(selector, "(a,b)", "(a b)"), ",")
	slices.Sort(found)
	return found
}

func TestSelectorRules(t *testing.T) {
	resource := schema.GroupResource{Resource: "configmaps"}
	rules, err := newSelectorRules(apisv1alpha2.PermissionClaimSelector{LabelSelector: metav1.LabelSelector{
		MatchLabels:      map[string]string{"for": "us"},
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "ready", Operator: metav1.LabelSelectorOpExists}},
	}}, resource)
	if err != nil {
		t.Fatal(err)
	}
	object := func(labels map[string]string) runtime.Object {
		if labels == nil {
			return nil
		}
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x", Labels: labels}}
	}
	type set = map[string]string
	for name, tc := range map[string]struct {
		operation admission.Operation
		old, new  set
		other     bool // another resource than the claimed one
		want      string
	}{
		"a new object gets the labels":                    {admission.Create, nil, set{"ready": ""}, false, ""},
		"labels of expressions are not set":               {admission.Create, nil, set{}, false, "object does not match required labels"},
		"another value is rejected":                       {admission.Create, nil, set{"for": "them", "ready": ""}, false, "protected label for must have value us"},
		"a matching object can be updated":                {admission.Update, set{"for": "us", "ready": ""}, set{"ready": "yes"}, false, ""},
		"an update must not remove required labels":       {admission.Update, set{"for": "us", "ready": ""}, set{"for": "us"}, false, "object does not match required labels"},
		"an object that does not match cannot be updated": {admission.Update, set{"ready": ""}, set{"for": "us", "ready": ""}, false, "object does not match required labels"},
		"a matching object can be deleted":                {admission.Delete, set{"for": "us", "ready": ""}, nil, false, ""},
		"an object that does not match cannot be deleted": {admission.Delete, set{"for": "them", "ready": ""}, nil, false, "object does not match required labels"},
		"the rules do not apply to other resources":       {admission.Create, nil, set{}, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			gvr := resource.WithVersion("v1")
			if tc.other {
				gvr.Resource = "secrets"
			}
			a := admission.NewAttributesRecord(object(tc.new), object(tc.old), schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, "default", "x", gvr, "", tc.operation, nil, false, nil)
			err := rules.Admit(t.Context(), a, nil)
			if err == nil {
				err = rules.Validate(t.Context(), a, nil)
			}
			if (err == nil) != (tc.want == "") || err != nil && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
	if rules, err := newSelectorRules(apisv1alpha2.PermissionClaimSelector{MatchAll: true}, resource); rules != nil || err != nil {
		t.Errorf("a claim on all objects has rules: %v, %v", rules, err)
	}
}
