package dependencies

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/internal/memory"
)

func TestFindUnreleasedRestore(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*operatorv1alpha1.Restore)
		found  bool
	}{
		"of the installation": {func(*operatorv1alpha1.Restore) {}, true},
		"that was released":   {func(r *operatorv1alpha1.Restore) { r.Spec.Release = true }, false},
		"that runs":           {func(r *operatorv1alpha1.Restore) { r.Status.Phase = operatorv1alpha1.RestorePhaseRunning }, false},
		"of a workspace": {func(r *operatorv1alpha1.Restore) {
			r.Spec.Workspace = &operatorv1alpha1.RestoreWorkspace{Path: "root:acme"}
		}, false},
		"that no annotation names": {func(r *operatorv1alpha1.Restore) { r.Name = "other" }, false},
		"of a shard": {func(r *operatorv1alpha1.Restore) {
			r.Name, r.Spec.Shard = "other", &operatorv1alpha1.RestoreShard{Name: "alpha"}
		}, true},
		"of another one's shard": {func(r *operatorv1alpha1.Restore) {
			r.Spec.Shard, r.Spec.RootShardRef.Name = &operatorv1alpha1.RestoreShard{Name: "alpha"}, "other"
		}, false},
		"of an installation elsewhere": {func(r *operatorv1alpha1.Restore) { r.Spec.RootShardRef.Name = "other" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			root := &operatorv1alpha1.RootShard{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp", Name: "root", Annotations: map[string]string{operatorv1alpha1.AnnotationRestore: "back"}}}
			restore := &operatorv1alpha1.Restore{ObjectMeta: metav1.ObjectMeta{Namespace: "kcp", Name: "back"}}
			restore.Spec.RootShardRef.Name, restore.Status.Phase = "root", operatorv1alpha1.RestorePhaseCompleted
			tc.change(restore)
			found, err := FindUnreleasedRestore(t.Context(), apply.Cluster{Client: memory.NewClient(t, root, restore)}, root)
			if err != nil || (found == restore.Name) != tc.found {
				t.Errorf("%v: found %q", err, found)
			}
		})
	}
}
