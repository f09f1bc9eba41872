package claims

import (
	"fmt"
	"maps"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	kcpcore "github.com/atoll-dev/atoll/shardserver/apis/core"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

var configMaps = schema.GroupResource{Resource: "configmaps"}

// newAcceptingBinding returns a binding of a logical cluster that accepts one claim.
func newAcceptingBinding(cluster, name string, claim apisv1alpha2.ScopedPermissionClaim) *apisv1alpha2.APIBinding {
	binding := newBinding(claim.PermissionClaim)
	binding.Name = name
	binding.Annotations = map[string]string{"kcp.io/cluster": cluster}
	binding.Spec.PermissionClaims = []apisv1alpha2.AcceptablePermissionClaim{newAcceptableClaim(claim, apisv1alpha2.ClaimAccepted)}
	return binding
}

// newSyncedIndex returns an index of the given bindings.
func newSyncedIndex(t testing.TB, observed ...*apisv1alpha2.APIBinding) *Index {
	t.Helper()
	registry := storage.NewRegistry(kcpcore.Locality)
	index := NewIndex(registry, bindings.NewIndex(registry))
	for _, binding := range observed {
		if err := index.update(binding); err != nil {
			t.Fatal(err)
		}
	}
	index.setSynced()
	return index
}

func TestIndexLabels(t *testing.T) {
	claim := newClaim("", "configmaps", "*")
	index := newSyncedIndex(t,
		newAcceptingBinding("all", "binding", newScopedClaim(claim, nil)),
		newAcceptingBinding("some", "binding", newScopedClaim(claim, map[string]string{"a": "b"})),
		newAcceptingBinding("nothing", "binding", newScopedClaim(claim, map[string]string{})),
		newAcceptingBinding("events", "binding", newScopedClaim(newClaim("events.k8s.io", "events", "*"), nil)),
	)
	export := bindings.ExportKey{Cluster: logicalcluster.MustParseName("provider"), Name: "export"}
	key, value := apiindex.ClaimLabel(export, claim)
	eventKey, eventValue := apiindex.ClaimLabel(export, newClaim("", "events"))
	for name, tc := range map[string]struct {
		cluster  string
		resource schema.GroupResource
		own      map[string]string
		want     map[string]string
	}{
		"all objects are selected":                {"all", configMaps, nil, map[string]string{key: value}},
		"objects of other resources":              {"all", schema.GroupResource{Resource: "secrets"}, nil, nil},
		"objects of other logical clusters":       {"other", configMaps, nil, nil},
		"matching labels":                         {"some", configMaps, map[string]string{"a": "b"}, map[string]string{key: value}},
		"labels that do not match":                {"some", configMaps, map[string]string{"a": "c"}, nil},
		"an empty selector":                       {"nothing", configMaps, map[string]string{"a": "b"}, nil},
		"events of the core group":                {"events", schema.GroupResource{Resource: "events"}, nil, map[string]string{eventKey: eventValue}},
		"events of events.k8s.io":                 {"events", schema.GroupResource{Group: "events.k8s.io", Resource: "events"}, nil, map[string]string{eventKey: eventValue}},
		"bindings without an export label":        {"other", apiBindings, nil, nil},
		"bindings have the label of their export": {"other", apiBindings, map[string]string{apisv1alpha2.ExportLabelKey: "e"}, map[string]string{prefix + "e": apiindex.ReflexiveClaimValue}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := index.Labels(logicalcluster.With(t.Context(), logicalcluster.MustParseName(tc.cluster)), tc.resource, tc.own)
			if err != nil || !maps.Equal(got, tc.want) {
				t.Errorf("got %v, %v, want %v", got, err, tc.want)
			}
		})
	}
	if _, err := index.Labels(logicalcluster.With(t.Context(), logicalcluster.Wildcard), configMaps, nil); err == nil {
		t.Error("the wildcard has labels")
	}
}

func TestEqualBindingsShareClaimSets(t *testing.T) {
	claim := newScopedClaim(newClaim("", "configmaps", "*"), nil)
	index := newSyncedIndex(t)
	for i := range 1000 {
		if err := index.update(newAcceptingBinding(fmt.Sprintf("c%d", i), "binding", claim)); err != nil {
			t.Fatal(err)
		}
	}
	if clusters, sets := index.Sizes(); clusters != 1000 || sets != 1 {
		t.Errorf("%d clusters have %d sets", clusters, sets)
	}
	for i := range 1000 {
		switch binding := newAcceptingBinding(fmt.Sprintf("c%d", i), "binding", claim); i % 3 {
		case 0:
			if err := index.onDelete(t.Context(), binding); err != nil {
				t.Fatal(err)
			}
		case 1:
			binding.Spec.PermissionClaims = nil
			if err := index.update(binding); err != nil {
				t.Fatal(err)
			}
		default:
			now := metav1.Now()
			binding.DeletionTimestamp = &now
			conditionsv1alpha1.MarkTrue(binding, apisv1alpha2.BindingResourceDeleteSuccess)
			if err := index.update(binding); err != nil {
				t.Fatal(err)
			}
		}
	}
	if clusters, sets := index.Sizes(); clusters != 0 || sets != 0 {
		t.Errorf("%d clusters and %d sets remain after the bindings are deleted", clusters, sets)
	}
}

func TestIsUpToDate(t *testing.T) {
	before := newAcceptingBinding("c", "binding", newScopedClaim(newClaim("", "configmaps", "*"), nil))
	after := newAcceptingBinding("c", "binding", newScopedClaim(newClaim("", "configmaps", "*"), map[string]string{"a": "b"}))
	index := newSyncedIndex(t, before, newAcceptingBinding("c", "another", newScopedClaim(newClaim("", "secrets", "*"), nil)))
	for name, tc := range map[string]struct {
		binding *apisv1alpha2.APIBinding
		want    bool
	}{
		"an indexed binding":             {before, true},
		"a later version of the binding": {after, false},
		"a new binding":                  {newAcceptingBinding("c", "new", newScopedClaim(newClaim("", "configmaps", "*"), nil)), false},
		"a binding without claims":       {newBinding(), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := index.isUpToDate(tc.binding); err != nil || got != tc.want {
				t.Errorf("got %v, %v, want %v", got, err, tc.want)
			}
		})
	}
}

// BenchmarkLabelsWithoutClaims measures the cost of a write in a logical cluster without claims, while 100,000 others have claims.
func BenchmarkLabelsWithoutClaims(b *testing.B) {
	index := newSyncedIndex(b)
	claim := newScopedClaim(newClaim("", "configmaps", "*"), nil)
	for i := range 100_000 {
		if err := index.update(newAcceptingBinding(fmt.Sprintf("c%d", i), "binding", claim)); err != nil {
			b.Fatal(err)
		}
	}
	ctx := logicalcluster.With(b.Context(), logicalcluster.MustParseName("other"))
	objectLabels := map[string]string{"app": "x", "tier": "y"}
	b.ReportAllocs()
	for b.Loop() {
		if desired, err := index.Labels(ctx, configMaps, objectLabels); err != nil || !LabelsMatch(objectLabels, desired) {
			b.Fatal(desired, err)
		}
	}
}
