package instance

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// keptMetadata are the metadata fields of instances that the cache retains.
var keptMetadata = []string{"name", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "finalizers"}

// trimMetadata removes metadata whose size tenants control: no schema bounds labels, annotations and owners.
func trimMetadata(metadata map[string]any) {
	cluster, found, _ := unstructured.NestedString(metadata, "annotations", logicalcluster.AnnotationKey)
	maps.DeleteFunc(metadata, func(name string, _ any) bool { return !slices.Contains(keptMetadata, name) })
	if found {
		metadata["annotations"] = map[string]any{logicalcluster.AnnotationKey: cluster}
	}
}
