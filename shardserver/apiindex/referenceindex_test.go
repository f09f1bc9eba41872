package apiindex

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

func bindingOf(cluster, path, export string) *apisv1alpha2.APIBinding {
	return &apisv1alpha2.APIBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "b", Annotations: map[string]string{logicalcluster.AnnotationKey: cluster}},
		Spec: apisv1alpha2.APIBindingSpec{Reference: apisv1alpha2.BindingReference{
			Export: &apisv1alpha2.ExportBindingReference{Path: path, Name: export},
		}},
	}
}

func exportOf(cluster, path, name, identity string) *apisv1alpha2.APIExport {
	return &apisv1alpha2.APIExport{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{logicalcluster.AnnotationKey: cluster, logicalcluster.PathAnnotationKey: path}},
		Status:     apisv1alpha2.APIExportStatus{IdentityHash: identity},
	}
}

func TestNewReference(t *testing.T) {
	own := logicalcluster.MustParseName("own")
	for name, tc := range map[string]struct {
		path, export, want string
	}{
		"a path":                             {"root:org", "widgets", "root:org:widgets"},
		"a cluster name":                     {"abc", "widgets", "abc:widgets"},
		"no path: the binding's own cluster": {"", "widgets", "own:widgets"},
		"no export name":                     {"root:org", "", ""},
		"an invalid path":                    {"Root", "widgets", ""},
		"the wildcard":                       {"*", "widgets", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := NewReference(own, tc.path, tc.export)
			if (err == nil) != (tc.want != "") || (err == nil && got.String() != tc.want) {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
	if _, err := ReferenceOf(&apisv1alpha2.APIBinding{}); err == nil {
		t.Error("a binding without reference has a reference")
	}
}

func TestReferenceIndex(t *testing.T) {
	consumers := NewConsumerIndex(storage.NewRegistry(storage.Locality{}))
	byPath, byCluster, other := bindingOf("c1", "root:org", "widgets"), bindingOf("c2", "provider", "widgets"), bindingOf("c3", "root:org", "gadgets")
	for _, binding := range []*apisv1alpha2.APIBinding{byPath, byCluster, other, bindingOf("c4", "Nonsense", "widgets")} {
		consumers.Observe(binding, false)
		consumers.Observe(binding, false) // by another watch
	}
	export := exportOf("provider", "root:org", "widgets", "")
	if got := consumers.RequestsFor(export); len(got) != 2 || !consumers.HasReferences(export) {
		t.Errorf("requests are %v", got)
	}
	if consumers.HasReferences(exportOf("unrelated", "root:other", "widgets", "")) {
		t.Error("an export of another cluster has references")
	}

	// After a disconnect, objects that are neither listed nor added by another watch meanwhile are removed.
	consumers.disconnect()
	late := bindingOf("c5", "provider", "widgets")
	consumers.Observe(late, false)
	consumers.replace([]*apisv1alpha2.APIBinding{byPath})
	if references, objects := consumers.Sizes(); references != 2 || objects != 2 {
		t.Errorf("%d objects with %d references are indexed", objects, references)
	}
	consumers.Observe(byPath, true)
	consumers.Observe(late, true)
	if references, objects := consumers.Sizes(); references != 0 || objects != 0 {
		t.Errorf("%d objects with %d references remain", objects, references)
	}
}

func TestReplaceRemovesMissingExports(t *testing.T) {
	resolver := NewResolver(storage.NewRegistry(storage.Locality{}), nil)
	var notified []bindings.ExportKey
	resolver.Subscribe(func(export bindings.ExportKey) { notified = append(notified, export) })
	one, two := exportOf("provider", "root:org", "one", "1d"), exportOf("provider", "root:org", "two", "1d")
	resolver.update(one)
	resolver.update(two)
	resolver.update(exportOf("provider", "root:new", "one", "2d")) // another path and identity
	if known, references, identities := resolver.Sizes(); known != 2 || references != 4 || identities != 2 {
		t.Errorf("%d exports, %d references, %d identities", known, references, identities)
	}
	resolver.replace([]*apisv1alpha2.APIExport{two})
	if known, references, identities := resolver.Sizes(); known != 1 || references != 2 || identities != 1 {
		t.Errorf("%d exports, %d references, %d identities", known, references, identities)
	}
	resolver.delete(two)
	if known, references, identities := resolver.Sizes(); known != 0 || references != 0 || identities != 0 {
		t.Errorf("%d exports, %d references, %d identities remain", known, references, identities)
	}
	if len(notified) != 6 {
		t.Errorf("notified of %v", notified)
	}
}
