package core

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/admission/admissiontest"
	"github.com/atoll-dev/atoll/shardserver/admission/rules"
)

const (
	scheduling   = corev1alpha1.LogicalClusterPhaseScheduling
	initializing = corev1alpha1.LogicalClusterPhaseInitializing
	ready        = corev1alpha1.LogicalClusterPhaseReady
)

func withInitializers(initializers ...corev1alpha1.LogicalClusterInitializer) admissiontest.ClusterChange {
	return func(c *corev1alpha1.LogicalCluster) { c.Status.Initializers = initializers }
}

func withOwner(uid types.UID) admissiontest.ClusterChange {
	return func(c *corev1alpha1.LogicalCluster) { c.Spec.Owner = &corev1alpha1.LogicalClusterOwner{UID: uid} }
}

func TestLogicalClusterUpdates(t *testing.T) {
	for name, tc := range map[string]struct {
		old, obj *corev1alpha1.LogicalCluster
		wantErr  string
	}{
		"tenant changes annotations":                       {admissiontest.LogicalCluster(ready), admissiontest.LogicalCluster(ready, admissiontest.WithAnnotations("a", "b")), ""},
		"creator is changed":                               {admissiontest.LogicalCluster(ready), admissiontest.LogicalCluster(ready, func(c *corev1alpha1.LogicalCluster) { c.Spec.CreatedBy.Username = "bob" }), "spec.createdBy is immutable"},
		"creator is removed":                               {admissiontest.LogicalCluster(ready), admissiontest.LogicalCluster(ready, func(c *corev1alpha1.LogicalCluster) { c.Spec.CreatedBy = nil }), "spec.createdBy is immutable"},
		"owner is changed":                                 {admissiontest.LogicalCluster(ready, withOwner("1")), admissiontest.LogicalCluster(ready, withOwner("2")), "spec.owner is immutable"},
		"owner is removed":                                 {admissiontest.LogicalCluster(ready, withOwner("1")), admissiontest.LogicalCluster(ready), "spec.owner is immutable"},
		"initializer of the spec is removed":               {admissiontest.LogicalCluster(ready), admissiontest.LogicalCluster(ready, func(c *corev1alpha1.LogicalCluster) { c.Spec.Initializers = c.Spec.Initializers[:1] }), "spec.initializers is immutable"},
		"initializers of the spec are reordered":           {admissiontest.LogicalCluster(ready), admissiontest.LogicalCluster(ready, func(c *corev1alpha1.LogicalCluster) { slices.Reverse(c.Spec.Initializers) }), ""},
		"initialization starts":                            {admissiontest.LogicalCluster(scheduling), admissiontest.LogicalCluster(initializing), ""},
		"initialization starts from no phase":              {admissiontest.LogicalCluster(""), admissiontest.LogicalCluster(initializing), ""},
		"one initializer completes":                        {admissiontest.LogicalCluster(initializing, withInitializers("root:aa", "root:bb")), admissiontest.LogicalCluster(initializing, withInitializers("root:bb")), ""},
		"initializer is added":                             {admissiontest.LogicalCluster(initializing, withInitializers("root:aa")), admissiontest.LogicalCluster(initializing, withInitializers("root:aa", "root:bb")), "status.initializers must not grow"},
		"initializer is replaced":                          {admissiontest.LogicalCluster(initializing, withInitializers("root:aa")), admissiontest.LogicalCluster(initializing, withInitializers("root:cc")), "status.initializers must not grow"},
		"initialization ends without initializers":         {admissiontest.LogicalCluster(initializing), admissiontest.LogicalCluster(ready), ""},
		"initialization ends with the last initializer":    {admissiontest.LogicalCluster(initializing, withInitializers("root:aa")), admissiontest.LogicalCluster(ready), ""},
		"initialization ends with initializers":            {admissiontest.LogicalCluster(initializing, withInitializers("root:aa")), admissiontest.LogicalCluster(ready, withInitializers("root:aa")), "status.initializers must be empty"},
		"initializers are added in phase Ready":            {admissiontest.LogicalCluster(ready), admissiontest.LogicalCluster(ready, withInitializers("root:aa")), "status.initializers is immutable"},
		"initializers are added in phase Inactive":         {admissiontest.LogicalCluster(corev1alpha1.LogicalClusterPhaseInactive), admissiontest.LogicalCluster(initializing, withInitializers("root:aa")), "status.initializers is immutable"},
		"phase goes back from Ready":                       {admissiontest.LogicalCluster(ready), admissiontest.LogicalCluster(initializing), "status.phase cannot go back"},
		"phase is removed":                                 {admissiontest.LogicalCluster(ready), admissiontest.LogicalCluster(""), "status.phase cannot go back"},
		"phase Unavailable after Ready":                    {admissiontest.LogicalCluster(ready), admissiontest.LogicalCluster(corev1alpha1.LogicalClusterPhaseUnavailable), "status.phase cannot go back"},
		"phase Ready after Unavailable":                    {admissiontest.LogicalCluster(corev1alpha1.LogicalClusterPhaseUnavailable), admissiontest.LogicalCluster(ready), ""},
		"inactive in phase Ready":                          {admissiontest.LogicalCluster(ready), admissiontest.LogicalCluster(ready, admissiontest.WithAnnotations(corev1alpha1.InactiveAnnotationKey, "true")), ""},
		"inactive in phase Ready by the legacy key":        {admissiontest.LogicalCluster(ready), admissiontest.LogicalCluster(ready, admissiontest.WithAnnotations(corev1alpha1.LegacyInactiveAnnotationKey, "true")), ""},
		"inactive in phase Initializing":                   {admissiontest.LogicalCluster(initializing), admissiontest.LogicalCluster(initializing, admissiontest.WithAnnotations(corev1alpha1.InactiveAnnotationKey, "true")), "can only be set in phase Ready"},
		"inactive in phase Initializing by the legacy key": {admissiontest.LogicalCluster(initializing), admissiontest.LogicalCluster(initializing, admissiontest.WithAnnotations(corev1alpha1.LegacyInactiveAnnotationKey, "true")), "can only be set in phase Ready"},
		"activated in phase Inactive":                      {admissiontest.LogicalCluster(corev1alpha1.LogicalClusterPhaseInactive, admissiontest.WithAnnotations(corev1alpha1.InactiveAnnotationKey, "true")), admissiontest.LogicalCluster(corev1alpha1.LogicalClusterPhaseInactive), ""},
	} {
		t.Run(name, func(t *testing.T) {
			q := admissiontest.Request{Cluster: "c1", Resource: rules.LogicalClusters, Name: "cluster", User: admissiontest.Alice, Operation: admission.Update, Old: tc.old, Object: tc.obj.DeepCopy()}
			admissiontest.WantForbidden(t, admissiontest.AdmitAndValidate(t, NewLogicalCluster(rules.Config{}), q), tc.wantErr)
			for _, group := range rules.LogicalClusterManagers {
				q.User, q.Object = admissiontest.Member(group), tc.obj.DeepCopy()
				if err := admissiontest.AdmitAndValidate(t, NewLogicalCluster(rules.Config{}), q); err != nil {
					t.Errorf("the rules of tenants apply to %s: %v", group, err)
				}
			}
		})
	}

	t.Run("different list at the start of initialization is rejected", func(t *testing.T) {
		q := admissiontest.Request{Cluster: "c1", Resource: rules.LogicalClusters, Name: "cluster", User: admissiontest.Alice, Operation: admission.Update, Old: admissiontest.LogicalCluster(scheduling), Object: admissiontest.LogicalCluster(initializing)}
		admissiontest.WantForbidden(t, admissiontest.ValidateOnly(t, NewLogicalCluster(rules.Config{}), q), "status.initializers must equal spec.initializers")
	})
}

func TestInitializersAreCopiedFromSpec(t *testing.T) {
	old := admissiontest.LogicalCluster(scheduling)
	obj := admissiontest.LogicalCluster(initializing, withInitializers("root:mine"), func(c *corev1alpha1.LogicalCluster) {
		c.Spec.Initializers = nil // a status update does not change the spec, even if its body does
	})
	q := admissiontest.Request{Cluster: "c1", Resource: rules.LogicalClusters, Subresource: "status", Name: "cluster", User: admissiontest.Master, Operation: admission.Update, Old: old, Object: obj}
	if err := admissiontest.AdmitAndValidate(t, NewLogicalCluster(rules.Config{}), q); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(obj.Status.Initializers, old.Spec.Initializers) || !slices.Equal(obj.Status.Terminators, old.Spec.Terminators) {
		t.Errorf("status starts with %v and %v", obj.Status.Initializers, obj.Status.Terminators)
	}
	obj.Status.Initializers[0] = "root:changed"
	if old.Spec.Initializers[0] == "root:changed" {
		t.Error("status and spec share a list")
	}
}

func TestProtectedAnnotations(t *testing.T) {
	for _, key := range protectedAnnotations {
		for name, tc := range map[string]struct {
			by        user.Info
			old, want []string // annotations
			update    []string
		}{
			"change by a tenant is reverted":   {admissiontest.Alice, []string{key, "a"}, []string{key, "a", "mine", "1"}, []string{key, "b", "mine", "1"}},
			"removal by a tenant is reverted":  {admissiontest.Alice, []string{key, "a"}, []string{key, "a"}, nil},
			"addition by a tenant is reverted": {admissiontest.Alice, nil, nil, []string{key, "b"}},
			"change by masters is kept":        {admissiontest.Master, []string{key, "a"}, []string{key, "b"}, []string{key, "b"}},
		} {
			t.Run(key+": "+name, func(t *testing.T) {
				obj := admissiontest.LogicalCluster(ready, admissiontest.WithAnnotations(tc.update...))
				q := admissiontest.Request{Cluster: "c1", Resource: rules.LogicalClusters, Name: "cluster", User: tc.by, Operation: admission.Update, Old: admissiontest.LogicalCluster(ready, admissiontest.WithAnnotations(tc.old...)), Object: obj}
				admissiontest.WantForbidden(t, admissiontest.AdmitAndValidate(t, NewLogicalCluster(rules.Config{}), q), "")
				if got, want := admissiontest.ToJSON(obj.Annotations), admissiontest.ToJSON(admissiontest.ToMap(tc.want)); got != want {
					t.Errorf("annotations\n%s\nwant\n%s", got, want)
				}
			})
		}
	}
}

// TestProtectedAnnotationsAfterWebhooks: what Admit restores, a webhook or a policy of the tenant can change again.
func TestProtectedAnnotationsAfterWebhooks(t *testing.T) {
	for _, key := range protectedAnnotations {
		for by, want := range map[user.Info]string{admissiontest.Alice: key, admissiontest.Master: ""} {
			q := admissiontest.Request{Cluster: "c1", Resource: rules.LogicalClusters, Name: "cluster", User: by, Operation: admission.Update,
				Old: admissiontest.LogicalCluster(ready), Object: admissiontest.LogicalCluster(ready, admissiontest.WithAnnotations(key, "a"))}
			admissiontest.WantForbidden(t, admissiontest.ValidateOnly(t, NewLogicalCluster(rules.Config{}), q), want)
		}
	}
}

func TestLogicalClusterCreationAndDeletion(t *testing.T) {
	deletable := admissiontest.LogicalCluster(ready, func(c *corev1alpha1.LogicalCluster) { c.Spec.DirectlyDeletable = true })
	for name, tc := range map[string]struct {
		operation admission.Operation
		by        user.Info
		obj, old  runtime.Object
		wantErr   string
	}{
		"create by tenants":                             {admission.Create, admissiontest.Alice, admissiontest.LogicalCluster(""), nil, "LogicalCluster cannot be created"},
		"create by kcp-admin":                           {admission.Create, admissiontest.Member("system:kcp:admin"), admissiontest.LogicalCluster(""), nil, "LogicalCluster cannot be created"},
		"create by masters":                             {admission.Create, admissiontest.Master, admissiontest.LogicalCluster(""), nil, ""},
		"create by logical cluster admins":              {admission.Create, admissiontest.Member(rules.GroupLogicalClusterAdmin), admissiontest.LogicalCluster(""), nil, ""},
		"create by external logical cluster admins":     {admission.Create, admissiontest.Member(rules.GroupExternalLogicalClusterAdmin), admissiontest.LogicalCluster(""), nil, ""},
		"create by the workspace bootstrapper":          {admission.Create, admissiontest.Member(rules.GroupWorkspaceBootstrapper), admissiontest.LogicalCluster(""), nil, ""},
		"delete by tenants":                             {admission.Delete, admissiontest.Alice, nil, admissiontest.LogicalCluster(ready), "LogicalCluster cannot be deleted"},
		"delete of a directly deletable one by tenants": {admission.Delete, admissiontest.Alice, nil, deletable, ""},
		"delete without an object by tenants":           {admission.Delete, admissiontest.Alice, nil, nil, "LogicalCluster cannot be deleted"},
		"delete by masters":                             {admission.Delete, admissiontest.Master, nil, admissiontest.LogicalCluster(ready), ""},
	} {
		t.Run(name, func(t *testing.T) {
			q := admissiontest.Request{Cluster: "c1", Resource: rules.LogicalClusters, Name: "cluster", User: tc.by, Operation: tc.operation, Object: tc.obj, Old: tc.old}
			admissiontest.WantForbidden(t, admissiontest.AdmitAndValidate(t, NewLogicalCluster(rules.Config{}), q), tc.wantErr)
		})
	}
}

func TestLogicalClusterFinalizer(t *testing.T) {
	const guarded = corev1alpha1.LogicalClusterDeletionFinalizer
	now := metav1.Now()
	withFinalizers := func(finalizers ...string) admissiontest.ClusterChange {
		return func(c *corev1alpha1.LogicalCluster) { c.Finalizers = finalizers }
	}
	deleting := func(c *corev1alpha1.LogicalCluster) { c.DeletionTimestamp = &now }

	for name, tc := range map[string]struct {
		by       user.Info
		old, obj *corev1alpha1.LogicalCluster
		want     []string
		wantErr  string
	}{
		"added on creation":                 {admissiontest.Alice, nil, admissiontest.LogicalCluster(""), []string{guarded}, ""},
		"added after others":                {admissiontest.Alice, nil, admissiontest.LogicalCluster("", withFinalizers("a")), []string{"a", guarded}, ""},
		"added once":                        {admissiontest.Alice, admissiontest.LogicalCluster("", withFinalizers(guarded)), admissiontest.LogicalCluster("", withFinalizers(guarded)), []string{guarded}, ""},
		"restored after removal":            {admissiontest.Alice, admissiontest.LogicalCluster("", withFinalizers(guarded)), admissiontest.LogicalCluster(""), []string{guarded}, ""},
		"restored after removal by masters": {admissiontest.Master, admissiontest.LogicalCluster("", withFinalizers(guarded)), admissiontest.LogicalCluster(""), []string{guarded}, ""},
		"added despite a deletion timestamp in the created object": {admissiontest.Alice, nil, admissiontest.LogicalCluster("", deleting), []string{guarded}, ""},
		"restored despite a deletion timestamp in the update":      {admissiontest.Alice, admissiontest.LogicalCluster("", withFinalizers(guarded)), admissiontest.LogicalCluster("", deleting), []string{guarded}, ""},
		"removal during deletion by tenants":                       {admissiontest.Alice, admissiontest.LogicalCluster("", withFinalizers(guarded), deleting), admissiontest.LogicalCluster("", deleting), nil, "removing the finalizer"},
		"removal during deletion by logical cluster admins":        {admissiontest.Member(rules.GroupLogicalClusterAdmin), admissiontest.LogicalCluster("", withFinalizers(guarded), deleting), admissiontest.LogicalCluster("", deleting), nil, "removing the finalizer"},
		"removal during deletion by masters":                       {admissiontest.Master, admissiontest.LogicalCluster("", withFinalizers(guarded), deleting), admissiontest.LogicalCluster("", deleting), nil, ""},
		"removal of another finalizer during deletion":             {admissiontest.Alice, admissiontest.LogicalCluster("", withFinalizers("a", guarded), deleting), admissiontest.LogicalCluster("", withFinalizers(guarded), deleting), []string{guarded}, ""},
		"not added during deletion":                                {admissiontest.Alice, admissiontest.LogicalCluster("", withFinalizers("a"), deleting), admissiontest.LogicalCluster("", withFinalizers("a"), deleting), []string{"a"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			q := admissiontest.Request{Cluster: "c1", Resource: rules.LogicalClusters, Name: "cluster", User: tc.by, Operation: admission.Create, Object: tc.obj}
			if tc.old != nil {
				q.Operation, q.Old = admission.Update, tc.old
			}
			admissiontest.WantForbidden(t, admissiontest.AdmitAndValidate(t, NewLogicalClusterFinalizer(rules.Config{}), q), tc.wantErr)
			if tc.wantErr == "" && !slices.Equal(tc.obj.Finalizers, tc.want) {
				t.Errorf("finalizers %v, want %v", tc.obj.Finalizers, tc.want)
			}
		})
	}

	t.Run("missing finalizer after all plug-ins is rejected", func(t *testing.T) {
		q := admissiontest.Request{Cluster: "c1", Resource: rules.LogicalClusters, Name: "cluster", User: admissiontest.Master, Operation: admission.Create, Object: admissiontest.LogicalCluster("")}
		admissiontest.WantForbidden(t, admissiontest.ValidateOnly(t, NewLogicalClusterFinalizer(rules.Config{}), q), "is missing")
	})
}
