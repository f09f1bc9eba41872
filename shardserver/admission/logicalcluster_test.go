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
		says     string
	}{
		"annotations are the tenant's":                {testLogicalCluster(ready), testLogicalCluster(ready, withClusterAnnotations("a", "b")), ""},
		"the creator stays":                           {testLogicalCluster(ready), testLogicalCluster(ready, func(c *corev1alpha1.LogicalCluster) { c.Spec.CreatedBy.Username = "bob" }), "spec.createdBy is immutable"},
		"the creator cannot be dropped":               {testLogicalCluster(ready), testLogicalCluster(ready, func(c *corev1alpha1.LogicalCluster) { c.Spec.CreatedBy = nil }), "spec.createdBy is immutable"},
		"the owner stays":                             {testLogicalCluster(ready, withOwner("1")), testLogicalCluster(ready, withOwner("2")), "spec.owner is immutable"},
		"the owner cannot be dropped":                 {testLogicalCluster(ready, withOwner("1")), testLogicalCluster(ready), "spec.owner is immutable"},
		"the initializers of the spec stay":           {testLogicalCluster(ready), testLogicalCluster(ready, func(c *corev1alpha1.LogicalCluster) { c.Spec.Initializers = c.Spec.Initializers[:1] }), "spec.initializers is immutable"},
		"their order does not count":                  {testLogicalCluster(ready), testLogicalCluster(ready, func(c *corev1alpha1.LogicalCluster) { slices.Reverse(c.Spec.Initializers) }), ""},
		"initialization starts":                       {testLogicalCluster(scheduling), testLogicalCluster(initializing), ""},
		"initialization starts from no phase":         {testLogicalCluster(""), testLogicalCluster(initializing), ""},
		"one initializer is done":                     {testLogicalCluster(initializing, withInitializers("root:aa", "root:bb")), testLogicalCluster(initializing, withInitializers("root:bb")), ""},
		"no initializer comes back":                   {testLogicalCluster(initializing, withInitializers("root:aa")), testLogicalCluster(initializing, withInitializers("root:aa", "root:bb")), "status.initializers must not grow"},
		"no initializer is swapped":                   {testLogicalCluster(initializing, withInitializers("root:aa")), testLogicalCluster(initializing, withInitializers("root:cc")), "status.initializers must not grow"},
		"initialization ends when all are done":       {testLogicalCluster(initializing), testLogicalCluster(ready), ""},
		"the last one ends it":                        {testLogicalCluster(initializing, withInitializers("root:aa")), testLogicalCluster(ready), ""},
		"initialization does not end before":          {testLogicalCluster(initializing, withInitializers("root:aa")), testLogicalCluster(ready, withInitializers("root:aa")), "status.initializers must be empty"},
		"a ready cluster gets no initializers":        {testLogicalCluster(ready), testLogicalCluster(ready, withInitializers("root:aa")), "status.initializers is immutable"},
		"an inactive cluster gets none either":        {testLogicalCluster(corev1alpha1.LogicalClusterPhaseInactive), testLogicalCluster(initializing, withInitializers("root:aa")), "status.initializers is immutable"},
		"ready does not go back":                      {testLogicalCluster(ready), testLogicalCluster(initializing), "status.phase cannot go back"},
		"ready does not go back to nothing":           {testLogicalCluster(ready), testLogicalCluster(""), "status.phase cannot go back"},
		"phases off the way count as lowest":          {testLogicalCluster(ready), testLogicalCluster(corev1alpha1.LogicalClusterPhaseUnavailable), "status.phase cannot go back"},
		"from such a phase any is forward":            {testLogicalCluster(corev1alpha1.LogicalClusterPhaseUnavailable), testLogicalCluster(ready), ""},
		"a ready cluster may be switched off":         {testLogicalCluster(ready), testLogicalCluster(ready, withClusterAnnotations(corev1alpha1.InactiveAnnotationKey, "true")), ""},
		"by the old key as well":                      {testLogicalCluster(ready), testLogicalCluster(ready, withClusterAnnotations(corev1alpha1.LegacyInactiveAnnotationKey, "true")), ""},
		"no other may be switched off":                {testLogicalCluster(initializing), testLogicalCluster(initializing, withClusterAnnotations(corev1alpha1.InactiveAnnotationKey, "true")), "can only be set in phase Ready"},
		"nor by the old key":                          {testLogicalCluster(initializing), testLogicalCluster(initializing, withClusterAnnotations(corev1alpha1.LegacyInactiveAnnotationKey, "true")), "can only be set in phase Ready"},
		"an inactive one may be touched and woken up": {testLogicalCluster(corev1alpha1.LogicalClusterPhaseInactive, withClusterAnnotations(corev1alpha1.InactiveAnnotationKey, "true")), testLogicalCluster(corev1alpha1.LogicalClusterPhaseInactive), ""},
	} {
		t.Run(name, func(t *testing.T) {
			q := testRequest{cluster: "c1", resource: logicalClusters, name: "cluster", user: alice, operation: admission.Update, old: tc.old, obj: tc.obj.DeepCopy()}
			wantForbidden(t, admitAndValidate(t, newLogicalCluster(Config{}), q), tc.says)
			for _, group := range logicalClusterManagers {
				q.user, q.obj = member(group), tc.obj.DeepCopy()
				if err := admitAndValidate(t, newLogicalCluster(Config{}), q); err != nil {
					t.Errorf("%s is held to the rules of tenants: %v", group, err)
				}
			}
		})
	}

	t.Run("a different list at the start of initialization is refused", func(t *testing.T) {
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
		t.Error("status and spec share their list")
	}
}

func TestProtectedAnnotations(t *testing.T) {
	for _, key := range protectedAnnotations {
		for name, tc := range map[string]struct {
			by        user.Info
			old, want []string // annotations
			says      []string
		}{
			"a tenant's name is replaced":  {alice, []string{key, "a"}, []string{key, "a", "mine", "1"}, []string{key, "b", "mine", "1"}},
			"a tenant cannot drop it":      {alice, []string{key, "a"}, []string{key, "a"}, nil},
			"nor add it":                   {alice, nil, nil, []string{key, "b"}},
			"masters move logical cluster": {master, []string{key, "a"}, []string{key, "b"}, []string{key, "b"}},
		} {
			t.Run(key+": "+name, func(t *testing.T) {
				obj := testLogicalCluster(ready, withClusterAnnotations(tc.says...))
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
		says      string
	}{
		"tenants create none":                         {admission.Create, alice, testLogicalCluster(""), nil, "LogicalCluster cannot be created"},
		"kcp-admin creates none":                      {admission.Create, member("system:kcp:admin"), testLogicalCluster(""), nil, "LogicalCluster cannot be created"},
		"masters create them":                         {admission.Create, master, testLogicalCluster(""), nil, ""},
		"logical cluster admins create them":          {admission.Create, member(groupLogicalClusterAdmin), testLogicalCluster(""), nil, ""},
		"external logical cluster admins create them": {admission.Create, member(groupExternalLogicalClusterAdmin), testLogicalCluster(""), nil, ""},
		"the workspace bootstrapper creates them":     {admission.Create, member(groupWorkspaceBootstrapper), testLogicalCluster(""), nil, ""},
		"tenants delete none":                         {admission.Delete, alice, nil, testLogicalCluster(ready), "LogicalCluster cannot be deleted"},
		"tenants delete one that says they may":       {admission.Delete, alice, nil, deletable, ""},
		"tenants delete none that is not shown":       {admission.Delete, alice, nil, nil, "LogicalCluster cannot be deleted"},
		"masters delete them":                         {admission.Delete, master, nil, testLogicalCluster(ready), ""},
	} {
		t.Run(name, func(t *testing.T) {
			q := testRequest{cluster: "c1", resource: logicalClusters, name: "cluster", user: tc.by, operation: tc.operation, obj: tc.obj, old: tc.old}
			wantForbidden(t, admitAndValidate(t, newLogicalCluster(Config{}), q), tc.says)
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
		says     string
	}{
		"is added on creation":                           {alice, nil, testLogicalCluster(""), []string{guarded}, ""},
		"is added behind others":                         {alice, nil, testLogicalCluster("", withFinalizers("a")), []string{"a", guarded}, ""},
		"is added once":                                  {alice, testLogicalCluster("", withFinalizers(guarded)), testLogicalCluster("", withFinalizers(guarded)), []string{guarded}, ""},
		"comes back when dropped":                        {alice, testLogicalCluster("", withFinalizers(guarded)), testLogicalCluster(""), []string{guarded}, ""},
		"comes back when masters drop it":                {master, testLogicalCluster("", withFinalizers(guarded)), testLogicalCluster(""), []string{guarded}, ""},
		"is added though the creation claims a deletion": {alice, nil, testLogicalCluster("", deleting), []string{guarded}, ""},
		"comes back though an update claims a deletion":  {alice, testLogicalCluster("", withFinalizers(guarded)), testLogicalCluster("", deleting), []string{guarded}, ""},
		"is not taken off a deleting one by tenants":     {alice, testLogicalCluster("", withFinalizers(guarded), deleting), testLogicalCluster("", deleting), nil, "removing the finalizer"},
		"is not taken off by logical cluster admins":     {member(groupLogicalClusterAdmin), testLogicalCluster("", withFinalizers(guarded), deleting), testLogicalCluster("", deleting), nil, "removing the finalizer"},
		"is taken off by masters":                        {master, testLogicalCluster("", withFinalizers(guarded), deleting), testLogicalCluster("", deleting), nil, ""},
		"lets others go from a deleting one":             {alice, testLogicalCluster("", withFinalizers("a", guarded), deleting), testLogicalCluster("", withFinalizers(guarded), deleting), []string{guarded}, ""},
		"is not added to a deleting one":                 {alice, testLogicalCluster("", withFinalizers("a"), deleting), testLogicalCluster("", withFinalizers("a"), deleting), []string{"a"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			q := testRequest{cluster: "c1", resource: logicalClusters, name: "cluster", user: tc.by, operation: admission.Create, obj: tc.obj}
			if tc.old != nil {
				q.operation, q.old = admission.Update, tc.old
			}
			wantForbidden(t, admitAndValidate(t, newLogicalClusterFinalizer(Config{}), q), tc.says)
			if tc.says == "" && !slices.Equal(tc.obj.Finalizers, tc.want) {
				t.Errorf("finalizers %v, want %v", tc.obj.Finalizers, tc.want)
			}
		})
	}

	t.Run("missing after all plug-ins is refused", func(t *testing.T) {
		q := testRequest{cluster: "c1", resource: logicalClusters, name: "cluster", user: master, operation: admission.Create, obj: testLogicalCluster("")}
		wantForbidden(t, validateOnly(t, newLogicalClusterFinalizer(Config{}), q), "is missing")
	})
}
