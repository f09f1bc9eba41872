package instance

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/atoll-dev/atoll/logicalcluster"
)

func TestMetadataThatTenantsCanFillIsNotKept(t *testing.T) {
	large := strings.Repeat("x", 100<<10)
	metadata := map[string]any{
		"name": "mine", "uid": "1", "generation": int64(2), "finalizers": []any{"a"}, "labels": map[string]any{"a": large}, "ownerReferences": []any{large},
		"annotations": map[string]any{logicalcluster.AnnotationKey: "tenant", "kubectl.kubernetes.io/last-applied-configuration": large},
	}
	trimMetadata(metadata)
	want := map[string]any{
		"name": "mine", "uid": "1", "generation": int64(2), "finalizers": []any{"a"}, "annotations": map[string]any{logicalcluster.AnnotationKey: "tenant"},
	}
	if diff := cmp.Diff(want, metadata); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
