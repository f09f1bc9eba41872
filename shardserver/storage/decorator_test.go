package storage

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"

	"github.com/atoll-dev/atoll/logicalcluster"
)

func clusterContext(cluster logicalcluster.Name) context.Context {
	return logicalcluster.With(context.Background(), cluster)
}

func TestKeys(t *testing.T) {
	l := layout{prefix: "/core/configmaps"}
	a := logicalcluster.MustParseName("a")
	for name, tc := range map[string]struct {
		ctx  context.Context
		key  string
		want string // empty: an error
	}{
		"a namespaced object":                       {clusterContext(a), "/core/configmaps/ns/x", "/core/configmaps/a/ns/x"},
		"the whole resource":                        {clusterContext(a), "/core/configmaps", "/core/configmaps/a"},
		"the whole resource as a directory":         {clusterContext(a), "/core/configmaps/", "/core/configmaps/a/"},
		"no cluster":                                {context.Background(), "/core/configmaps/ns/x", ""},
		"the wildcard":                              {clusterContext(logicalcluster.Wildcard), "/core/configmaps/ns/x", ""},
		"a key of a resource with a longer name":    {clusterContext(a), "/core/configmapsx/ns/x", ""},
		"a key outside of the resource":             {clusterContext(a), "/core/secrets/ns/x", ""},
		"an object whose name is that of a cluster": {clusterContext(a), "/core/configmaps/b/x", "/core/configmaps/a/b/x"},
		"a system cluster, whose name has a colon":  {clusterContext(logicalcluster.Admin), "/core/configmaps/ns/x", "/core/configmaps/system:admin/ns/x"},
		"the zero name":                             {clusterContext(logicalcluster.Name{}), "/core/configmaps/ns/x", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := l.key(tc.ctx, tc.key)
			if (err != nil) != (tc.want == "") || (err == nil && got != tc.want) {
				t.Fatalf("key() = %q, %v, want %q", got, err, tc.want)
			}
		})
	}
}

func TestWildcardRanges(t *testing.T) {
	l := layout{prefix: "/core/configmaps"}
	ctx := clusterContext(logicalcluster.Wildcard)
	if key, _, err := l.rangeKey(ctx, "/core/configmaps/"); err != nil || key != "/core/configmaps/" {
		t.Errorf("the wildcard keeps the prefix, got %q, %v", key, err)
	}
	if key, _, err := l.rangeKey(ctx, "/core/configmaps/ns/"); err == nil {
		t.Errorf("the wildcard with a namespace is ambiguous, got %q", key)
	}
}

func TestSetClusterAnnotationOverwritesClientValue(t *testing.T) {
	annotations := map[string]string{logicalcluster.AnnotationKey: "victim", "own": "kept"}
	obj := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}}
	if err := setClusterAnnotation(clusterContext(logicalcluster.Root), obj); err != nil {
		t.Fatal(err)
	}
	if got := logicalcluster.Of(obj); got != logicalcluster.Root || obj.Annotations["own"] != "kept" {
		t.Errorf("annotations = %v", obj.Annotations)
	}
	if annotations[logicalcluster.AnnotationKey] != "victim" {
		t.Error("the caller's map must not be modified: it may be shared with the watch cache")
	}
	for _, ctx := range []context.Context{context.Background(), clusterContext(logicalcluster.Wildcard)} {
		if err := setClusterAnnotation(ctx, obj); err == nil {
			t.Error("a write needs exactly one cluster")
		}
	}
}

// TestInNewNamespaceWithoutTransactions: a storage that stores each object alone refuses one whose namespace need not exist.
func TestInNewNamespaceWithoutTransactions(t *testing.T) {
	s := &clusterStorage{layout: layout{prefix: "/core/configmaps"}, resource: schema.GroupResource{Resource: "configmaps"}}
	errs := Together(clusterContext(logicalcluster.MustParseName("a")), InNewNamespace(func(ctx context.Context) error {
		return s.Create(ctx, "/core/configmaps/new/x", &metav1.PartialObjectMetadata{}, nil, 0)
	}))
	if !apierrors.IsConflict(errs[0]) {
		t.Errorf("got %v, want a conflict", errs[0])
	}
}

func TestWatchersAreIndexedByCluster(t *testing.T) {
	named := fields.OneTermEqualSelector("metadata.name", "x")
	for name, field := range map[string]fields.Selector{"without a selector": nil, "with everything": fields.Everything(), "with a name": named} {
		t.Run(name, func(t *testing.T) {
			predicate := withClusterIndex(storage.SelectionPredicate{Field: field}, logicalcluster.MustParseName("a"))
			same, err := predicate.Field.DeepCopySelector().Transform(func(field, value string) (string, string, error) { return field, value, nil })
			if err != nil {
				t.Fatal(err)
			}
			for _, selector := range []fields.Selector{predicate.Field, same} {
				if value, ok := selector.RequiresExactMatch(indexField); !ok || value != "a" {
					t.Fatalf("the watch cache cannot find the watcher: %q, %v", value, ok)
				}
				if value, ok := selector.RequiresExactMatch("metadata.name"); ok != (field == named) || (ok && value != "x") {
					t.Errorf("a name is required: %q, %v", value, ok)
				}
				for object, want := range map[string]bool{"x": true, "y": field != named} {
					if got := selector.Matches(fields.Set{"metadata.name": object}); got != want {
						t.Errorf("an object named %s matches: %v", object, got)
					}
				}
			}
		})
	}
}
