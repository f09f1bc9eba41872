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

func clusterIn(phase corev1alpha1.LogicalClusterPhaseType, changes ...clusterChange) *corev1alpha1.LogicalCluster {
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

func remaining(initializers ...corev1alpha1.LogicalClusterInitializer) clusterChange {
	return func(c *corev1alpha1.LogicalCluster) { c.Status.Initializers = initializers }
}

func annotated(list ...string) clusterChange {
	return func(c *corev1alpha1.LogicalCluster) { c.Annotations = pairs(list) }
}

func ownedBy(uid types.UID) clusterChange {
	return func(c *corev1alpha1.LogicalCluster) { c.Spec.Owner = &corev1alpha1.LogicalClusterOwner{UID: uid} }
}

func TestLogicalClusterUpdates(t *testing.T) {
	for name, tc := range map[string]struct {
		old, obj *corev1alpha1.LogicalCluster
		says     string
	}{
		"annotations are the tenant's":                {clusterIn(ready), clusterIn(ready, annotated("a", "b")), ""},
		"the creator stays":                           {clusterIn(ready), clusterIn(ready, func(c *corev1alpha1.LogicalCluster) { c.Spec.CreatedBy.Username = "bob" }), "spec.createdBy is immutable"},
		"the creator cannot be dropped":               {clusterIn(ready), clusterIn(ready, func(c *corev1alpha1.LogicalCluster) { c.Spec.CreatedBy = nil }), "spec.createdBy is immutable"},
		"the owner stays":                             {clusterIn(ready, ownedBy("1")), clusterIn(ready, ownedBy("2")), "spec.owner is immutable"},
		"the owner cannot be dropped":                 {clusterIn(ready, ownedBy("1")), clusterIn(ready), "spec.owner is immutable"},
		"the initializers of the spec stay":           {clusterIn(ready), clusterIn(ready, func(c *corev1alpha1.LogicalCluster) { c.Spec.Initializers = c.Spec.Initializers[:1] }), "spec.initializers is immutable"},
		"their order does not count":                  {clusterIn(ready), clusterIn(ready, func(c *corev1alpha1.LogicalCluster) { slices.Reverse(c.Spec.Initializers) }), ""},
		"initialization starts":                       {clusterIn(scheduling), clusterIn(initializing), ""},
		"initialization starts from no phase":         {clusterIn(""), clusterIn(initializing), ""},
		"one initializer is done":                     {clusterIn(initializing, remaining("root:aa", "root:bb")), clusterIn(initializing, remaining("root:bb")), ""},
		"no initializer comes back":                   {clusterIn(initializing, remaining("root:aa")), clusterIn(initializing, remaining("root:aa", "root:bb")), "status.initializers must not grow"},
		"no initializer is swapped":                   {clusterIn(initializing, remaining("root:aa")), clusterIn(initializing, remaining("root:cc")), "status.initializers must not grow"},
		"initialization ends when all are done":       {clusterIn(initializing), clusterIn(ready), ""},
		"the last one ends it":                        {clusterIn(initializing, remaining("root:aa")), clusterIn(ready), ""},
		"initialization does not end before":          {clusterIn(initializing, remaining("root:aa")), clusterIn(ready, remaining("root:aa")), "status.initializers must be empty"},
		"a ready cluster gets no initializers":        {clusterIn(ready), clusterIn(ready, remaining("root:aa")), "status.initializers is immutable"},
		"an inactive cluster gets none either":        {clusterIn(corev1alpha1.LogicalClusterPhaseInactive), clusterIn(initializing, remaining("root:aa")), "status.initializers is immutable"},
		"ready does not go back":                      {clusterIn(ready), clusterIn(initializing), "status.phase cannot go back"},
		"ready does not go back to nothing":           {clusterIn(ready), clusterIn(""), "status.phase cannot go back"},
		"phases off the way count as lowest":          {clusterIn(ready), clusterIn(corev1alpha1.LogicalClusterPhaseUnavailable), "status.phase cannot go back"},
		"from such a phase any is forward":            {clusterIn(corev1alpha1.LogicalClusterPhaseUnavailable), clusterIn(ready), ""},
		"a ready cluster may be switched off":         {clusterIn(ready), clusterIn(ready, annotated(corev1alpha1.InactiveAnnotationKey, "true")), ""},
		"by the old key as well":                      {clusterIn(ready), clusterIn(ready, annotated(corev1alpha1.LegacyInactiveAnnotationKey, "true")), ""},
		"no other may be switched off":                {clusterIn(initializing), clusterIn(initializing, annotated(corev1alpha1.InactiveAnnotationKey, "true")), "can only be set in phase Ready"},
		"nor by the old key":                          {clusterIn(initializing), clusterIn(initializing, annotated(corev1alpha1.LegacyInactiveAnnotationKey, "true")), "can only be set in phase Ready"},
		"an inactive one may be touched and woken up": {clusterIn(corev1alpha1.LogicalClusterPhaseInactive, annotated(corev1alpha1.InactiveAnnotationKey, "true")), clusterIn(corev1alpha1.LogicalClusterPhaseInactive), ""},
	} {
		t.Run(name, func(t *testing.T) {
			q := ask{cluster: "c1", resource: logicalClusters, name: "cluster", by: alice, operation: admission.Update, old: tc.old, obj: tc.obj.DeepCopy()}
			wantForbidden(t, through(t, newLogicalCluster(Config{}), q), tc.says)
			for _, group := range logicalClusterManagers {
				q.by, q.obj = member(group), tc.obj.DeepCopy()
				if err := through(t, newLogicalCluster(Config{}), q); err != nil {
					t.Errorf("%s is held to the rules of tenants: %v", group, err)
				}
			}
		})
	}

	t.Run("a different list at the start of initialization is refused", func(t *testing.T) {
		q := ask{cluster: "c1", resource: logicalClusters, name: "cluster", by: alice, operation: admission.Update, old: clusterIn(scheduling), obj: clusterIn(initializing)}
		wantForbidden(t, validated(t, newLogicalCluster(Config{}), q), "status.initializers must equal spec.initializers")
	})
}

func TestInitializationStartsWithTheSpec(t *testing.T) {
	old := clusterIn(scheduling)
	obj := clusterIn(initializing, remaining("root:mine"), func(c *corev1alpha1.LogicalCluster) {
		c.Spec.Initializers = nil // a status update does not change the spec, even if its body does
	})
	q := ask{cluster: "c1", resource: logicalClusters, subresource: "status", name: "cluster", by: master, operation: admission.Update, old: old, obj: obj}
	if err := through(t, newLogicalCluster(Config{}), q); err != nil {
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

func TestTheShardOfALogicalClusterIsNotItsTenantsToName(t *testing.T) {
	for _, key := range placeAnnotations {
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
				obj := clusterIn(ready, annotated(tc.says...))
				q := ask{cluster: "c1", resource: logicalClusters, name: "cluster", by: tc.by, operation: admission.Update, old: clusterIn(ready, annotated(tc.old...)), obj: obj}
				wantForbidden(t, through(t, newLogicalCluster(Config{}), q), "")
				if got, want := flat(obj.Annotations), flat(pairs(tc.want)); got != want {
					t.Errorf("annotations\n%s\nwant\n%s", got, want)
				}
			})
		}
	}
}

func TestLogicalClusterCreationAndDeletion(t *testing.T) {
	deletable := clusterIn(ready, func(c *corev1alpha1.LogicalCluster) { c.Spec.DirectlyDeletable = true })
	for name, tc := range map[string]struct {
		operation admission.Operation
		by        user.Info
		obj, old  runtime.Object
		says      string
	}{
		"tenants create none":                         {admission.Create, alice, clusterIn(""), nil, "LogicalCluster cannot be created"},
		"kcp-admin creates none":                      {admission.Create, member("system:kcp:admin"), clusterIn(""), nil, "LogicalCluster cannot be created"},
		"masters create them":                         {admission.Create, master, clusterIn(""), nil, ""},
		"logical cluster admins create them":          {admission.Create, member(groupLogicalClusterAdmin), clusterIn(""), nil, ""},
		"external logical cluster admins create them": {admission.Create, member(groupExternalLogicalClusterAdmin), clusterIn(""), nil, ""},
		"the workspace bootstrapper creates them":     {admission.Create, member(groupWorkspaceBootstrapper), clusterIn(""), nil, ""},
		"tenants delete none":                         {admission.Delete, alice, nil, clusterIn(ready), "LogicalCluster cannot be deleted"},
		"tenants delete one that says they may":       {admission.Delete, alice, nil, deletable, ""},
		"tenants delete none that is not shown":       {admission.Delete, alice, nil, nil, "LogicalCluster cannot be deleted"},
		"masters delete them":                         {admission.Delete, master, nil, clusterIn(ready), ""},
	} {
		t.Run(name, func(t *testing.T) {
			q := ask{cluster: "c1", resource: logicalClusters, name: "cluster", by: tc.by, operation: tc.operation, obj: tc.obj, old: tc.old}
			wantForbidden(t, through(t, newLogicalCluster(Config{}), q), tc.says)
		})
	}
}

func TestLogicalClusterFinalizer(t *testing.T) {
	const guarded = corev1alpha1.LogicalClusterDeletionFinalizer
	now := metav1.Now()
	holding := func(finalizers ...string) clusterChange {
		return func(c *corev1alpha1.LogicalCluster) { c.Finalizers = finalizers }
	}
	dying := func(c *corev1alpha1.LogicalCluster) { c.DeletionTimestamp = &now }

	for name, tc := range map[string]struct {
		by       user.Info
		old, obj *corev1alpha1.LogicalCluster
		want     []string
		says     string
	}{
		"is added on creation":                           {alice, nil, clusterIn(""), []string{guarded}, ""},
		"is added behind others":                         {alice, nil, clusterIn("", holding("a")), []string{"a", guarded}, ""},
		"is added once":                                  {alice, clusterIn("", holding(guarded)), clusterIn("", holding(guarded)), []string{guarded}, ""},
		"comes back when dropped":                        {alice, clusterIn("", holding(guarded)), clusterIn(""), []string{guarded}, ""},
		"comes back when masters drop it":                {master, clusterIn("", holding(guarded)), clusterIn(""), []string{guarded}, ""},
		"is added though the creation claims a deletion": {alice, nil, clusterIn("", dying), []string{guarded}, ""},
		"comes back though an update claims a deletion":  {alice, clusterIn("", holding(guarded)), clusterIn("", dying), []string{guarded}, ""},
		"is not taken off a deleting one by tenants":     {alice, clusterIn("", holding(guarded), dying), clusterIn("", dying), nil, "removing the finalizer"},
		"is not taken off by logical cluster admins":     {member(groupLogicalClusterAdmin), clusterIn("", holding(guarded), dying), clusterIn("", dying), nil, "removing the finalizer"},
		"is taken off by masters":                        {master, clusterIn("", holding(guarded), dying), clusterIn("", dying), nil, ""},
		"lets others go from a deleting one":             {alice, clusterIn("", holding("a", guarded), dying), clusterIn("", holding(guarded), dying), []string{guarded}, ""},
		"is not added to a deleting one":                 {alice, clusterIn("", holding("a"), dying), clusterIn("", holding("a"), dying), []string{"a"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			q := ask{cluster: "c1", resource: logicalClusters, name: "cluster", by: tc.by, operation: admission.Create, obj: tc.obj}
			if tc.old != nil {
				q.operation, q.old = admission.Update, tc.old
			}
			wantForbidden(t, through(t, newLogicalClusterFinalizer(Config{}), q), tc.says)
			if tc.says == "" && !slices.Equal(tc.obj.Finalizers, tc.want) {
				t.Errorf("finalizers %v, want %v", tc.obj.Finalizers, tc.want)
			}
		})
	}

	t.Run("missing after all plug-ins is refused", func(t *testing.T) {
		q := ask{cluster: "c1", resource: logicalClusters, name: "cluster", by: master, operation: admission.Create, obj: clusterIn("")}
		wantForbidden(t, validated(t, newLogicalClusterFinalizer(Config{}), q), "is missing")
	})
}
