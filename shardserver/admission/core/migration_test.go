package core

import (
	"cmp"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/admission/admissiontest"
	"github.com/atoll-dev/atoll/shardserver/admission/rules"
)

func TestRefuseMigrations(t *testing.T) {
	admin := &user.DefaultInfo{Name: "admin", Groups: []string{rules.GroupAdmin}}
	tenant := &user.DefaultInfo{Name: "tenant", Groups: []string{user.AllAuthenticated}}
	kept, removed := []string{migrationv1alpha1.MigrationFinalizer}, []string(nil)
	for name, tc := range map[string]struct {
		user        user.Info
		operation   admission.Operation
		subresource string
		reason      string
		finalizers  []string
		phase       corev1alpha1.LogicalClusterPhaseType
		refused     bool
	}{
		"a migration is refused where nobody acts on it":            {user: admissiontest.Master, operation: admission.Create, reason: "disabled", refused: true},
		"by an administrator it is allowed":                         {user: admin, operation: admission.Create},
		"by the masters it is allowed":                              {user: admissiontest.Master, operation: admission.Create},
		"by the administrator of a workspace it is refused":         {user: tenant, operation: admission.Create, refused: true},
		"in a workspace that initializes it is refused":             {user: admin, operation: admission.Create, phase: corev1alpha1.LogicalClusterPhaseInitializing, refused: true},
		"in a workspace that is being deleted it is refused":        {user: admin, operation: admission.Create, phase: corev1alpha1.LogicalClusterPhaseTerminating, refused: true},
		"an update is allowed":                                      {user: admin, operation: admission.Update, finalizers: kept},
		"an update by the administrator of a workspace is refused":  {user: tenant, operation: admission.Update, finalizers: kept, refused: true},
		"an update that removes the finalizer is refused":           {user: admin, operation: admission.Update, finalizers: removed, refused: true},
		"shards remove the finalizer":                               {user: admissiontest.Master, operation: admission.Update, finalizers: removed},
		"the finalizer of an old one can be removed by the masters": {user: admissiontest.Master, operation: admission.Update, reason: "disabled", finalizers: removed},
		"shards write the status":                                   {user: admissiontest.Master, operation: admission.Update, subresource: "status", finalizers: kept},
		"nobody else writes the status":                             {user: admin, operation: admission.Update, subresource: "status", finalizers: kept, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			old := &migrationv1alpha1.LogicalClusterMigration{ObjectMeta: metav1.ObjectMeta{Name: "x", Finalizers: kept}}
			obj := old.DeepCopy()
			obj.Finalizers = tc.finalizers
			q := admissiontest.Request{Cluster: "root", Resource: migrations, Subresource: tc.subresource, Name: "x", User: tc.user, Operation: tc.operation, Object: obj, Old: old}
			phase := cmp.Or(tc.phase, corev1alpha1.LogicalClusterPhaseReady)
			config := admissiontest.NewShard().Add("root", &corev1alpha1.LogicalCluster{
				ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.LogicalClusterName}, Status: corev1alpha1.LogicalClusterStatus{Phase: phase},
			}, true).Config()
			config.MigrationRefusal = tc.reason
			if err := admissiontest.AdmitAndValidate(t, NewRefuseMigrations(config), q); (err != nil) != tc.refused {
				t.Errorf("got %v, want refused %t", err, tc.refused)
			}
		})
	}
}
