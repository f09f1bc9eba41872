package defaultbindings

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	kcpcore "github.com/atoll-dev/atoll/shardserver/apis/core"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/tenancy/workspacetype"
)

// TestTypeIndexRemovesDeletedObjects checks that entries are removed with their logical clusters, types and exports.
func TestTypeIndexRemovesDeletedObjects(t *testing.T) {
	registry := storage.NewRegistry(kcpcore.Locality)
	c := NewTypeIndex(registry, workspacetype.NewResolver(workspacetype.NewConsistentReader(registry, workspacetype.NewIndex(registry))))
	event := func(eventType watch.EventType, i int) {
		in := map[string]string{logicalcluster.AnnotationKey: fmt.Sprintf("cluster%d", i)}
		cluster := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster", Annotations: map[string]string{
			logicalcluster.AnnotationKey:                 in[logicalcluster.AnnotationKey],
			corev1alpha1.LogicalClusterTypeAnnotationKey: fmt.Sprintf("root:type%d", i%10),
		}}}
		export := &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "export", Annotations: in}}
		of := &tenancyv1alpha1.WorkspaceType{ObjectMeta: metav1.ObjectMeta{Name: "type", Annotations: in}}
		if keys := c.MapLogicalCluster(watch.Event{Type: eventType, Object: cluster}); len(keys) != 1 || keys[0].Name != "cluster" {
			t.Fatalf("a logical cluster is mapped to %v", keys)
		}
		c.MapExport(watch.Event{Type: eventType, Object: export})
		c.MapWorkspaceType(watch.Event{Type: eventType, Object: of})
	}
	for i := range 100 {
		event(watch.Added, i)
		event(watch.Modified, i)
	}
	if clusters, types, providers := c.Sizes(); clusters != 100 || types != 10 || providers != 100 {
		t.Errorf("has %d logical clusters, %d types, %d providers", clusters, types, providers)
	}
	for i := range 100 {
		event(watch.Deleted, i)
	}
	if clusters, types, providers := c.Sizes(); clusters+types+providers != 0 {
		t.Errorf("still has %d logical clusters, %d types, %d providers", clusters, types, providers)
	}
}
