package admission

import (
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
)

type clusterChange = func(*corev1alpha1.LogicalCluster)

const (
	scheduling   = corev1alpha1.LogicalClusterPhaseScheduling
	initializing = corev1alpha1.LogicalClusterPhaseInitializing
	ready        = corev1alpha1.LogicalClusterPhaseReady
)

func testLogicalCluster(phase corev1alpha1.LogicalClusterPhaseType, changes ...clusterChange) *corev1alpha1.LogicalCluster {
	c := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.LogicalClusterName}}
	c.Spec.CreatedBy = &authenticationv1.UserInfo{Username: "alice"}
	c.Spec.Initializers = []corev1alpha1.LogicalClusterInitializer{"root:aa", "root:bb"}
	c.Spec.Terminators = []corev1alpha1.LogicalClusterTerminator{"root:tt"}
	c.Status.Phase = phase
	for _, change := range changes {
		change(c)
	}
	return c
}

func withInitializers(initializers ...corev1alpha1.LogicalClusterInitializer) clusterChange {
	return func(c *corev1alpha1.LogicalCluster) { c.Status.Initializers = initializers }
}

func withClusterAnnotations(list ...string) clusterChange {
	return func(c *corev1alpha1.LogicalCluster) { c.Annotations = toMap(list) }
}

func withOwner(uid types.UID) clusterChange {
	return func(c *corev1alpha1.LogicalCluster) { c.Spec.Owner = &corev1alpha1.LogicalClusterOwner{UID: uid} }
}

func TestLogicalClusterUpdates(t *testing.T) {
	for name, tc := range map[string]struct {
		old, obj *corev1alpha1.LogicalCluster
		wantErr  string
	}{
		"tenant changes annotations":                       {testLogicalCluster(ready), testLogicalCluster(ready, withClusterAnnotations("a", "b")), ""},
		"creator is changed":                               {testLogicalCluster(ready), testLogicalCluster(ready, func(c *corev1alpha1.LogicalCluster) { c.Spec.CreatedBy.Username = "bob" }), "spec.createdBy is immutable"},
		"creator is removed":                               {testLogicalCluster(ready), testLogicalCluster(ready, func(c *corev1alpha1.LogicalCluster) { c.Spec.CreatedBy = nil }), "spec.createdBy is immutable"},
		"owner is changed":                                 {testLogicalCluster(ready, withOwner("1")), testLogicalCluster(ready, withOwner("2")), "spec.owner is immutable"},
		"owner is removed":                                 {testLogicalCluster(ready, withOwner("1")), testLogicalCluster(ready), "spec.owner is immutable"},
		"initializer of the spec is removed":               {testLogicalCluster(ready), testLogicalCluster(ready, func(c *corev1alpha1.LogicalCluster) { c.Spec.Initializers = c.Spec.Initializers[:1] }), "spec.initializers is immutable"},
		"initializers of the spec are reordered":           {testLogicalCluster(ready), testLogicalCluster(ready, func(c *corev1alpha1.LogicalCluster) { slices.Reverse(c.Spec.Initializers) }), ""},
		"initialization starts":                            {testLogicalCluster(scheduling), testLogicalCluster(initializing), ""},
		"initialization starts from no phase":              {testLogicalCluster(""), testLogicalCluster(initializing), ""},
		"one initializer completes":                        {testLogicalCluster(initializing, withInitializers("root:aa", "root:bb")), testLogicalCluster(initializing, withInitializers("root:bb")), ""},
		"initializer is added":                             {testLogicalCluster(initializing, withInitializers("root:aa")), testLogicalCluster(initializing, withInitializers("root:aa", "root:bb")), "status.initializers must not grow"},
		"initializer is replaced":                          {testLogicalCluster(initializing, withInitializers("root:aa")), testLogicalCluster(initializing, withInitializers("root:cc")), "status.initializers must not grow"},
		"initialization ends without initializers":         {testLogicalCluster(initializing), testLogicalCluster(ready), ""},
		"initialization ends with the last initializer":    {testLogicalCluster(initializing, withInitializers("root:aa")), testLogicalCluster(ready), ""},
		"initialization ends with initializers":            {testLogicalCluster(initializing, withInitializers("root:aa")), testLogicalCluster(ready, withInitializers("root:aa")), "status.initializers must be empty"},
		"initializers are added in phase Ready":            {testLogicalCluster(ready), testLogicalCluster(ready, withInitializers("root:aa")), "status.initializers is immutable"},
		"initializers are added in phase Inactive":         {testLogicalCluster(corev1alpha1.LogicalClusterPhaseInactive), testLogicalCluster(initializing, withInitializers("root:aa")), "status.initializers is immutable"},
		"phase goes back from Ready":                       {testLogicalCluster(ready), testLogicalCluster(initializing), "status.phase cannot go back"},
		"phase is removed":                                 {testLogicalCluster(ready), testLogicalCluster(""), "status.phase cannot go back"},
		"phase Unavailable after Ready":                    {testLogicalCluster(ready), testLogicalCluster(corev1alpha1.LogicalClusterPhaseUnavailable), "status.phase cannot go back"},
		"phase Ready after Unavailable":                    {testLogicalCluster(corev1alpha1.LogicalClusterPhaseUnavailable), testLogicalCluster(ready), ""},
		"inactive in phase Ready":                          {testLogicalCluster(ready), testLogicalCluster(ready, withClusterAnnotations(corev1alpha1.InactiveAnnotationKey, "true")), ""},
		"inactive in phase Ready by the legacy key":        {testLogicalCluster(ready), testLogicalCluster(ready, withClusterAnnotations(corev1alpha1.LegacyInactiveAnnotationKey, "true")), ""},
		"inactive in phase Initializing":                   {testLogicalCluster(initializing), testLogicalCluster(initializing, withClusterAnnotations(corev1alpha1.InactiveAnnotationKey, "true")), "can only be set in phase Ready"},
		"inactive in phase Initializing by the legacy key": {testLogicalCluster(initializing), testLogicalCluster(initializing, withClusterAnnotations(corev1alpha1.LegacyInactiveAnnotationKey, "true")), "can only be set in phase Ready"},
		"activated in phase Inactive":                      {testLogicalCluster(corev1alpha1.LogicalClusterPhaseInactive, withClusterAnnotations(corev1alpha1.InactiveAnnotationKey, "true")), testLogicalCluster(corev1alpha1.LogicalClusterPhaseInactive), ""},
	} {
		t.Run(name, func(t *testing.T) {
			q := testRequest{cluster: "c1", resource: logicalClusters, name: "cluster", user: alice, operation: admission.Update, old: tc.old, obj: tc.obj.DeepCopy()}
			wantForbidden(t, admitAndValidate(t, newLogicalCluster(Config{}), q), tc.wantErr)
			for _, group := range logicalClusterManagers {
				q.user, q.obj = member(group), tc.obj.DeepCopy()
				if err := admitAndValidate(t, newLogicalCluster(Config{}), q); err != nil {
					t.Errorf("the rules of tenants apply to %s: %v", group, err)
				}
			}
		})
	}

	t.Run("different list at the start of initialization is rejected", func(t *testing.T) {
		q := testRequest{cluster: "c1", resource: logicalClusters, name: "cluster", user: alice, operation: admission.Update, old: testLogicalCluster(scheduling), obj: testLogicalCluster(initializing)}
		wantForbidden(t, validateOnly(t, newLogicalCluster(Config{}), q), "status.initializers must equal spec.initializers")
	})
}

func TestInitializersAreCopiedFromSpec(t *testing.T) {
	old := testLogicalCluster(scheduling)
	obj := testLogicalCluster(initializing, withInitializers("root:mine"), func(c *corev1alpha1.LogicalCluster) {
		c.Spec.Initializers = nil // a status update does not change the spec, even if its body does
	})
	q := testRequest{cluster: "c1", resource: logicalClusters, subresource: "status", name: "cluster", user: master, operation: admission.Update, old: old, obj: obj}
	if err := admitAndValidate(t, newLogicalCluster(Config{}), q); err != nil {
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
			"change by a tenant is reverted":   {alice, []string{key, "a"}, []string{key, "a", "mine", "1"}, []string{key, "b", "mine", "1"}},
			"removal by a tenant is reverted":  {alice, []string{key, "a"}, []string{key, "a"}, nil},
			"addition by a tenant is reverted": {alice, nil, nil, []string{key, "b"}},
			"change by masters is kept":        {master, []string{key, "a"}, []string{key, "b"}, []string{key, "b"}},
		} {
			t.Run(key+": "+name, func(t *testing.T) {
				obj := testLogicalCluster(ready, withClusterAnnotations(tc.update...))
				q := testRequest{cluster: "c1", resource: logicalClusters, name: "cluster", user: tc.by, operation: admission.Update, old: testLogicalCluster(ready, withClusterAnnotations(tc.old...)), obj: obj}
				wantForbidden(t, admitAndValidate(t, newLogicalCluster(Config{}), q), "")
				if got, want := toJSON(obj.Annotations), toJSON(toMap(tc.want)); got != want {
					t.Errorf("annotations\n%s\nwant\n%s", got, want)
				}
			})
		}
	}
}

func TestLogicalClusterCreationAndDeletion(t *testing.T) {
	deletable := testLogicalCluster(ready, func(c *corev1alpha1.LogicalCluster) { c.Spec.DirectlyDeletable = true })
	for name, tc := range map[string]struct {
		operation admission.Operation
		by        user.Info
		obj, old  runtime.Object
		wantErr   string
	}{
		"create by tenants":                             {admission.Create, alice, testLogicalCluster(""), nil, "LogicalCluster cannot be created"},
		"create by kcp-admin":                           {admission.Create, member("system:kcp:admin"), testLogicalCluster(""), nil, "LogicalCluster cannot be created"},
		"create by masters":                             {admission.Create, master, testLogicalCluster(""), nil, ""},
		"create by logical cluster admins":              {admission.Create, member(groupLogicalClusterAdmin), testLogicalCluster(""), nil, ""},
		"create by external logical cluster admins":     {admission.Create, member(groupExternalLogicalClusterAdmin), testLogicalCluster(""), nil, ""},
		"create by the workspace bootstrapper":          {admission.Create, member(groupWorkspaceBootstrapper), testLogicalCluster(""), nil, ""},
		"delete by tenants":                             {admission.Delete, alice, nil, testLogicalCluster(ready), "LogicalCluster cannot be deleted"},
		"delete of a directly deletable one by tenants": {admission.Delete, alice, nil, deletable, ""},
		"delete without an object by tenants":           {admission.Delete, alice, nil, nil, "LogicalCluster cannot be deleted"},
		"delete by masters":                             {admission.Delete, master, nil, testLogicalCluster(ready), ""},
	} {
		t.Run(name, func(t *testing.T) {
			q := testRequest{cluster: "c1", resource: logicalClusters, name: "cluster", user: tc.by, operation: tc.operation, obj: tc.obj, old: tc.old}
			wantForbidden(t, admitAndValidate(t, newLogicalCluster(Config{}), q), tc.wantErr)
		})
	}
}

func TestLogicalClusterFinalizer(t *testing.T) {
	const guarded = corev1alpha1.LogicalClusterDeletionFinalizer
	now := metav1.Now()
	withFinalizers := func(finalizers ...string) clusterChange {
		return func(c *corev1alpha1.LogicalCluster) { c.Finalizers = finalizers }
	}
	deleting := func(c *corev1alpha1.LogicalCluster) { c.DeletionTimestamp = &now }

	for name, tc := range map[string]struct {
		by       user.Info
		old, obj *corev1alpha1.LogicalCluster
		want     []string
		wantErr  string
	}{
		"added on creation":                 {alice, nil, testLogicalCluster(""), []string{guarded}, ""},
		"added after others":                {alice, nil, testLogicalCluster("", withFinalizers("a")), []string{"a", guarded}, ""},
		"added once":                        {alice, testLogicalCluster("", withFinalizers(guarded)), testLogicalCluster("", withFinalizers(guarded)), []string{guarded}, ""},
		"restored after removal":            {alice, testLogicalCluster("", withFinalizers(guarded)), testLogicalCluster(""), []string{guarded}, ""},
		"restored after removal by masters": {master, testLogicalCluster("", withFinalizers(guarded)), testLogicalCluster(""), []string{guarded}, ""},
		"added despite a deletion timestamp in the created object": {alice, nil, testLogicalCluster("", deleting), []string{guarded}, ""},
		"restored despite a deletion timestamp in the update":      {alice, testLogicalCluster("", withFinalizers(guarded)), testLogicalCluster("", deleting), []string{guarded}, ""},
		"removal during deletion by tenants":                       {alice, testLogicalCluster("", withFinalizers(guarded), deleting), testLogicalCluster("", deleting), nil, "removing the finalizer"},
		"removal during deletion by logical cluster admins":        {member(groupLogicalClusterAdmin), testLogicalCluster("", withFinalizers(guarded), deleting), testLogicalCluster("", deleting), nil, "removing the finalizer"},
		"removal during deletion by masters":                       {master, testLogicalCluster("", withFinalizers(guarded), deleting), testLogicalCluster("", deleting), nil, ""},
		"removal of another finalizer during deletion":             {alice, testLogicalCluster("", withFinalizers("a", guarded), deleting), testLogicalCluster("", withFinalizers(guarded), deleting), []string{guarded}, ""},
		"not added during deletion":                                {alice, testLogicalCluster("", withFinalizers("a"), deleting), testLogicalCluster("", withFinalizers("a"), deleting), []string{"a"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			q := testRequest{cluster: "c1", resource: logicalClusters, name: "cluster", user: tc.by, operation: admission.Create, obj: tc.obj}
			if tc.old != nil {
				q.operation, q.old = admission.Update, tc.old
			}
			wantForbidden(t, admitAndValidate(t, newLogicalClusterFinalizer(Config{}), q), tc.wantErr)
			if tc.wantErr == "" && !slices.Equal(tc.obj.Finalizers, tc.want) {
				t.Errorf("finalizers %v, want %v", tc.obj.Finalizers, tc.want)
			}
		})
	}

	t.Run("missing finalizer after all plug-ins is rejected", func(t *testing.T) {
		q := testRequest{cluster: "c1", resource: logicalClusters, name: "cluster", user: master, operation: admission.Create, obj: testLogicalCluster("")}
		wantForbidden(t, validateOnly(t, newLogicalClusterFinalizer(Config{}), q), "is missing")
	})
}
