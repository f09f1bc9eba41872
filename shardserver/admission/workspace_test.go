package admission

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
)

const (
	ownerKey   = tenancyv1alpha1.ExperimentalWorkspaceOwnerAnnotationKey
	groupsKey  = corev1alpha1.RequiredGroupsAnnotationKey
	shardKey   = corev1alpha1.ShardAnnotationKey
	clusterKey = tenancyv1alpha1.WorkspaceClusterAnnotationKey
)

// testWorkspace returns a workspace with changes applied.
func testWorkspace(changes ...func(*tenancyv1alpha1.Workspace)) *tenancyv1alpha1.Workspace {
	w := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}
	w.Spec.Type = &tenancyv1alpha1.WorkspaceTypeReference{Name: "universal", Path: "root"}
	for _, change := range changes {
		change(w)
	}
	return w
}

func withAnnotations(annotations ...string) func(*tenancyv1alpha1.Workspace) {
	return func(w *tenancyv1alpha1.Workspace) { w.Annotations = toMap(annotations) }
}

func withCluster(w *tenancyv1alpha1.Workspace) {
	w.Spec.Cluster, w.Spec.URL = "c1", "https://kcp/clusters/c1"
}

func withMount(w *tenancyv1alpha1.Workspace) {
	w.Spec.Mount = &tenancyv1alpha1.Mount{Reference: tenancyv1alpha1.ObjectReference{APIVersion: "v1", Kind: "K", Name: "n"}}
}

func TestWorkspaceAnnotations(t *testing.T) {
	state := newFakeShard().cluster("plain").cluster("guarded", groupsKey, "admins")
	asOwner, err := encodeOwner(alice)
	if err != nil {
		t.Fatal(err)
	}

	for name, tc := range map[string]struct {
		cluster  string
		by       user.Info
		old, obj *tenancyv1alpha1.Workspace
		want     map[string]string
	}{
		"the creator is the owner":                                {"plain", alice, nil, testWorkspace(), map[string]string{ownerKey: asOwner}},
		"a claimed owner is replaced":                             {"plain", alice, nil, testWorkspace(withAnnotations(ownerKey, `{"username":"bob"}`)), map[string]string{ownerKey: asOwner}},
		"required groups come from the parent":                    {"guarded", alice, nil, testWorkspace(), map[string]string{ownerKey: asOwner, groupsKey: "admins"}},
		"required groups cannot be chosen":                        {"guarded", alice, nil, testWorkspace(withAnnotations(groupsKey, "everybody")), map[string]string{ownerKey: asOwner, groupsKey: "admins"}},
		"required groups cannot be invented":                      {"plain", alice, nil, testWorkspace(withAnnotations(groupsKey, "mine")), map[string]string{ownerKey: asOwner}},
		"the place cannot be chosen":                              {"plain", alice, nil, testWorkspace(withAnnotations(shardKey, "x", clusterKey, "c9", "mine", "1")), map[string]string{ownerKey: asOwner, "mine": "1"}},
		"masters own nothing":                                     {"plain", master, nil, testWorkspace(), map[string]string{}},
		"masters name an owner and a place":                       {"plain", master, nil, testWorkspace(withAnnotations(ownerKey, "o", clusterKey, "c9")), map[string]string{ownerKey: "o", clusterKey: "c9"}},
		"masters inherit required groups":                         {"guarded", master, nil, testWorkspace(), map[string]string{groupsKey: "admins"}},
		"masters may choose required groups":                      {"guarded", master, nil, testWorkspace(withAnnotations(groupsKey, "other")), map[string]string{groupsKey: "other"}},
		"an update keeps owner and groups":                        {"plain", alice, testWorkspace(withAnnotations(ownerKey, "o", groupsKey, "g")), testWorkspace(withAnnotations(ownerKey, "x")), map[string]string{ownerKey: "o", groupsKey: "g"}},
		"an update adds neither":                                  {"plain", alice, testWorkspace(), testWorkspace(withAnnotations(ownerKey, "x", groupsKey, "g")), map[string]string{}},
		"an update keeps the place":                               {"plain", alice, testWorkspace(withAnnotations(shardKey, "a", clusterKey, "c1")), testWorkspace(withAnnotations(shardKey, "b", "mine", "1")), map[string]string{shardKey: "a", clusterKey: "c1", "mine": "1"}},
		"masters change all":                                      {"plain", master, testWorkspace(withAnnotations(ownerKey, "o", shardKey, "a")), testWorkspace(withAnnotations(ownerKey, "p", shardKey, "b")), map[string]string{ownerKey: "p", shardKey: "b"}},
		"who manages logical clusters may move but not give away": {"plain", member(groupExternalLogicalClusterAdmin), testWorkspace(withAnnotations(ownerKey, "o", shardKey, "a")), testWorkspace(withAnnotations(ownerKey, "p", shardKey, "b")), map[string]string{ownerKey: "o", shardKey: "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			q := testRequest{cluster: tc.cluster, resource: workspaces, name: "team", user: tc.by, operation: admission.Create, obj: tc.obj}
			if tc.old != nil {
				q.operation, q.old = admission.Update, tc.old
			}
			if err := admitAndValidate(t, newWorkspace(state.config()), q); err != nil {
				t.Fatal(err)
			}
			if got, want := toJSON(tc.obj.Annotations), toJSON(tc.want); got != want {
				t.Fatalf("annotations\n%s\nwant\n%s", got, want)
			}
		})
	}

	var info authenticationv1.UserInfo
	if err := json.Unmarshal([]byte(asOwner), &info); err != nil || info.Username != "alice" || info.UID != "1" ||
		len(info.Groups) != 1 || info.Extra["from"].String() != "[test]" {
		t.Errorf("owner annotation %s does not hold the user: %v", asOwner, err)
	}
}

func TestWorkspaceValidation(t *testing.T) {
	state := newFakeShard().cluster("plain").cluster("guarded", groupsKey, "admins")
	retyped := func(w *tenancyv1alpha1.Workspace) {
		w.Spec.Type = &tenancyv1alpha1.WorkspaceTypeReference{Name: "team", Path: "root"}
	}
	untyped := func(w *tenancyv1alpha1.Workspace) { w.Spec.Type = nil }

	for name, tc := range map[string]struct {
		cluster     string
		by          user.Info
		old, obj    *tenancyv1alpha1.Workspace
		subresource string
		says        string
	}{
		"a plain workspace may be created":             {cluster: "plain", by: alice, obj: testWorkspace()},
		"not in a logical cluster that does not exist": {cluster: "gone", by: alice, obj: testWorkspace(), says: "the logical cluster does not exist"},
		"a cluster cannot be chosen":                   {cluster: "plain", by: alice, obj: testWorkspace(func(w *tenancyv1alpha1.Workspace) { w.Spec.Cluster = "c" }), says: "spec.cluster can only"},
		"a URL cannot be chosen":                       {cluster: "plain", by: alice, obj: testWorkspace(func(w *tenancyv1alpha1.Workspace) { w.Spec.URL = "u" }), says: "spec.URL can only"},
		"a cluster cannot be set later":                {cluster: "plain", by: alice, old: testWorkspace(), obj: testWorkspace(withCluster), says: "spec.cluster can only"},
		"a cluster cannot be taken away":               {cluster: "plain", by: alice, old: testWorkspace(withCluster), obj: testWorkspace(), says: "spec.cluster can only"},
		"kcp-admin is no master":                       {cluster: "plain", by: member("system:kcp:admin"), old: testWorkspace(), obj: testWorkspace(withCluster), says: "spec.cluster can only"},
		"masters may choose both":                      {cluster: "plain", by: master, obj: testWorkspace(withCluster)},
		"masters may set both later":                   {cluster: "plain", by: master, old: testWorkspace(), obj: testWorkspace(withCluster)},
		"the type stays":                               {cluster: "plain", by: alice, old: testWorkspace(), obj: testWorkspace(retyped), says: "spec.type is immutable"},
		"the type stays for masters too":               {cluster: "plain", by: master, old: testWorkspace(), obj: testWorkspace(retyped), says: "spec.type is immutable"},
		"the type cannot be taken away":                {cluster: "plain", by: alice, old: testWorkspace(), obj: testWorkspace(untyped), says: "spec.type is immutable"},
		"an update that changes labels passes":         {cluster: "plain", by: alice, old: testWorkspace(withCluster), obj: testWorkspace(withCluster, func(w *tenancyv1alpha1.Workspace) { w.Labels = toMap([]string{"a", "b"}) })},
		"mounts need their feature gate":               {cluster: "plain", by: alice, obj: testWorkspace(withMount), says: "WorkspaceMounts is off"},
		"for masters too":                              {cluster: "plain", by: master, obj: testWorkspace(withMount), says: "WorkspaceMounts is off"},
		"a mount cannot be added later":                {cluster: "plain", by: alice, old: testWorkspace(), obj: testWorkspace(withMount), says: "WorkspaceMounts is off"},
		"a mount from before does not block updates":   {cluster: "plain", by: alice, old: testWorkspace(withMount), obj: testWorkspace(withMount)},
		"status is not looked at":                      {cluster: "plain", by: alice, old: testWorkspace(), obj: testWorkspace(withCluster), subresource: "status"},
	} {
		t.Run(name, func(t *testing.T) {
			q := testRequest{cluster: tc.cluster, resource: workspaces, subresource: tc.subresource, name: "team", user: tc.by, operation: admission.Create, obj: tc.obj}
			if tc.old != nil {
				q.operation, q.old = admission.Update, tc.old
			}
			wantForbidden(t, admitAndValidate(t, newWorkspace(state.config()), q), tc.says)
		})
	}

	t.Run("an owner forged behind the plug-in is refused", func(t *testing.T) {
		q := testRequest{cluster: "plain", resource: workspaces, name: "team", user: alice, operation: admission.Create, obj: testWorkspace(withAnnotations(ownerKey, "bob"))}
		wantForbidden(t, validateOnly(t, newWorkspace(state.config()), q), "annotation "+ownerKey)
	})
	t.Run("required groups dropped behind the plug-in are refused", func(t *testing.T) {
		asOwner, _ := encodeOwner(alice)
		q := testRequest{cluster: "guarded", resource: workspaces, name: "team", user: alice, operation: admission.Create, obj: testWorkspace(withAnnotations(ownerKey, asOwner))}
		wantForbidden(t, validateOnly(t, newWorkspace(state.config()), q), "annotation "+groupsKey)
	})
}

func TestWorkspaceFinalizer(t *testing.T) {
	withFinalizer := func(w *tenancyv1alpha1.Workspace) { w.Finalizers = []string{corev1alpha1.LogicalClusterFinalizer} }
	deleting := func(w *tenancyv1alpha1.Workspace) { w.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }
	for name, tc := range map[string]struct {
		by            user.Info
		old, obj      *tenancyv1alpha1.Workspace
		says          string
		withFinalizer bool
	}{
		"a tenant cannot take it off a live workspace":          {by: alice, old: testWorkspace(withFinalizer), obj: testWorkspace(), withFinalizer: true},
		"nor off one that is being deleted":                     {by: alice, old: testWorkspace(withFinalizer, deleting), obj: testWorkspace(deleting), says: "removing the finalizer"},
		"kcp-admin is a tenant here":                            {by: member("system:kcp:admin"), old: testWorkspace(withFinalizer, deleting), obj: testWorkspace(deleting), says: "removing the finalizer"},
		"other changes of a deleting workspace pass":            {by: alice, old: testWorkspace(withFinalizer, deleting), obj: testWorkspace(withFinalizer, deleting, withAnnotations("a", "b")), withFinalizer: true},
		"a workspace that was not placed yet has none":          {by: alice, old: testWorkspace(), obj: testWorkspace()},
		"masters take it off":                                   {by: master, old: testWorkspace(withFinalizer, deleting), obj: testWorkspace(deleting)},
		"who manages logical clusters from elsewhere does, too": {by: member(groupExternalLogicalClusterAdmin), old: testWorkspace(withFinalizer), obj: testWorkspace()},
	} {
		t.Run(name, func(t *testing.T) {
			q := testRequest{cluster: "plain", resource: workspaces, name: "team", user: tc.by, operation: admission.Update, old: tc.old, obj: tc.obj}
			wantForbidden(t, admitAndValidate(t, newWorkspace(newFakeShard().cluster("plain").config()), q), tc.says)
			if got := len(tc.obj.Finalizers) == 1; got != tc.withFinalizer {
				t.Errorf("finalizers are %v", tc.obj.Finalizers)
			}
		})
	}
}

// wantForbidden fails unless err is a 403 that contains the text, or nil if the text is empty.
func wantForbidden(t *testing.T, err error, says string) {
	t.Helper()
	switch {
	case says == "" && err != nil:
		t.Fatalf("refused: %v", err)
	case says != "" && !apierrors.IsForbidden(err):
		t.Fatalf("got %v, want 403", err)
	case says != "" && !strings.Contains(err.Error(), says):
		t.Fatalf("%q does not say %q", err, says)
	}
}

func toJSON(m map[string]string) string {
	text, err := json.MarshalIndent(m, "", " ")
	if err != nil || len(m) == 0 {
		return "{}"
	}
	return string(text)
}
