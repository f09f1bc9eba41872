package cache

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	cachev1alpha1 "github.com/atoll-dev/atoll/api/cache/v1alpha1"
)

func TestValidateResourceSpec(t *testing.T) {
	for name, tc := range map[string]struct {
		spec         cachev1alpha1.ClusterCachedResourceSpec
		invalidField string
	}{
		"a resource of a group":           {cachev1alpha1.ClusterCachedResourceSpec{GroupVersionResource: cachev1alpha1.GroupVersionResource{Group: "example.io", Version: "v1", Resource: "widgets"}}, ""},
		"a resource of the core group":    {cachev1alpha1.ClusterCachedResourceSpec{GroupVersionResource: cachev1alpha1.GroupVersionResource{Resource: "widgets"}}, ""},
		"no resource":                     {cachev1alpha1.ClusterCachedResourceSpec{}, "spec.resource"},
		"an invalid resource":             {cachev1alpha1.ClusterCachedResourceSpec{GroupVersionResource: cachev1alpha1.GroupVersionResource{Resource: "Widgets"}}, "spec.resource"},
		"an invalid group":                {cachev1alpha1.ClusterCachedResourceSpec{GroupVersionResource: cachev1alpha1.GroupVersionResource{Group: "example..io", Resource: "widgets"}}, "spec.group"},
		"a requirement without operators": {cachev1alpha1.ClusterCachedResourceSpec{GroupVersionResource: cachev1alpha1.GroupVersionResource{Resource: "widgets"}, LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a"}}}}, "spec.labelSelector.matchExpressions[0].operator"},
	} {
		t.Run(name, func(t *testing.T) {
			checkErrors(t, validateResourceSpec(&cachev1alpha1.ClusterCachedResource{Spec: tc.spec}), tc.invalidField)
		})
	}
}

func TestValidateOmittedFields(t *testing.T) {
	const at = "metadata.annotations[" + cachev1alpha1.OmittedFieldsAnnotationKey + "]"
	for value, invalidField := range map[string]string{
		"spec.internal":              "",
		"spec.a.b-c, status, data.x": "",
		"":                           at,
		"spec.internal,":             at,
		"spec..internal":             at,
		".spec":                      at,
		"spec.items[0]":              at,
		"spec.items.*":               at,
		"metadata.labels":            at,
		"kind":                       at,
	} {
		t.Run(value, func(t *testing.T) {
			resource := &cachev1alpha1.ClusterCachedResource{Spec: cachev1alpha1.ClusterCachedResourceSpec{GroupVersionResource: cachev1alpha1.GroupVersionResource{Resource: "widgets"}}}
			resource.Annotations = map[string]string{cachev1alpha1.OmittedFieldsAnnotationKey: value}
			checkErrors(t, validateResourceSpec(resource), invalidField)
		})
	}
}

func TestValidateEndpointSlice(t *testing.T) {
	slice := func(change func(*cachev1alpha1.ClusterCachedResourceEndpointSlice)) *cachev1alpha1.ClusterCachedResourceEndpointSlice {
		s := &cachev1alpha1.ClusterCachedResourceEndpointSlice{Spec: cachev1alpha1.ClusterCachedResourceEndpointSliceSpec{
			ClusterCachedResource: cachev1alpha1.ClusterCachedResourceReference{Name: "a"},
			APIExport:             cachev1alpha1.ExportBindingReference{Path: "root:org", Name: "b"},
		}}
		change(s)
		return s
	}
	endpoint := func(url string, shards *cachev1alpha1.ShardSet) cachev1alpha1.ClusterCachedResourceEndpoint {
		return cachev1alpha1.ClusterCachedResourceEndpoint{URL: url, Shards: shards}
	}
	old := slice(func(*cachev1alpha1.ClusterCachedResourceEndpointSlice) {})
	for name, tc := range map[string]struct {
		change       func(*cachev1alpha1.ClusterCachedResourceEndpointSlice)
		invalidField string
	}{
		"unchanged": {func(*cachev1alpha1.ClusterCachedResourceEndpointSlice) {}, ""},
		"a selector of objects": {func(s *cachev1alpha1.ClusterCachedResourceEndpointSlice) {
			s.Annotations = map[string]string{cachev1alpha1.LabelSelectorAnnotationKey: "tier in (free,trial),!hidden"}
		}, ""},
		"no selector": {func(s *cachev1alpha1.ClusterCachedResourceEndpointSlice) {
			s.Annotations = map[string]string{cachev1alpha1.LabelSelectorAnnotationKey: "tier=(free"}
		}, "metadata.annotations[" + cachev1alpha1.LabelSelectorAnnotationKey + "]"},
		"another partition": {func(s *cachev1alpha1.ClusterCachedResourceEndpointSlice) { s.Spec.Partition = "p" }, ""},
		"another resource":  {func(s *cachev1alpha1.ClusterCachedResourceEndpointSlice) { s.Spec.ClusterCachedResource.Name = "c" }, "spec.clusterCachedResource"},
		"another export":    {func(s *cachev1alpha1.ClusterCachedResourceEndpointSlice) { s.Spec.APIExport.Path = "" }, "spec.export"},
		"an invalid path":   {func(s *cachev1alpha1.ClusterCachedResourceEndpointSlice) { s.Spec.APIExport.Path = "Root:" }, "spec.export.path"},
		"no name":           {func(s *cachev1alpha1.ClusterCachedResourceEndpointSlice) { s.Spec.ClusterCachedResource.Name = "" }, "spec.clusterCachedResource.name"},
		"one endpoint": {func(s *cachev1alpha1.ClusterCachedResourceEndpointSlice) {
			s.Status.Endpoints = append(s.Status.Endpoints, endpoint("https://a", &cachev1alpha1.ShardSet{MatchAll: true}))
		}, ""},
		"a duplicate": {func(s *cachev1alpha1.ClusterCachedResourceEndpointSlice) {
			s.Status.Endpoints = append(s.Status.Endpoints, endpoint("https://a", nil), endpoint("https://a", nil))
		}, "status.endpoints[1].url"},
		"all shards and some": {func(s *cachev1alpha1.ClusterCachedResourceEndpointSlice) {
			s.Status.Endpoints = append(s.Status.Endpoints, endpoint("https://a", &cachev1alpha1.ShardSet{MatchAll: true, Selector: &metav1.LabelSelector{}}))
		}, "status.endpoints[0].shards"},
		"an endpoint without URL": {func(s *cachev1alpha1.ClusterCachedResourceEndpointSlice) {
			s.Status.Endpoints = append(s.Status.Endpoints, endpoint("", nil))
		}, "status.endpoints[0].url"},
	} {
		t.Run(name, func(t *testing.T) {
			s := slice(tc.change)
			errs := append(validateSliceSpec(s), validateSliceStatus(s)...)
			checkErrors(t, append(errs, validateSliceTransition(s, old)...), tc.invalidField)
		})
	}
}

func TestSliceWithoutExport(t *testing.T) {
	checkErrors(t, validateSliceSpec(&cachev1alpha1.ClusterCachedResourceEndpointSlice{Spec: cachev1alpha1.ClusterCachedResourceEndpointSliceSpec{
		ClusterCachedResource: cachev1alpha1.ClusterCachedResourceReference{Name: "a"},
	}}), "")
}

// checkErrors checks that errors are for a field or its direct children only; for "", that there are none.
func checkErrors(t *testing.T, errs field.ErrorList, invalidField string) {
	t.Helper()
	if invalidField == "" && len(errs) == 0 {
		return
	}
	for _, err := range errs {
		if err.Field == invalidField {
			return
		}
	}
	t.Errorf("got %v, want %q", errs, invalidField)
}
