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
		"creator is the owner":                                        {"plain", alice, nil, testWorkspace(), map[string]string{ownerKey: asOwner}},
		"owner of the user is replaced":                               {"plain", alice, nil, testWorkspace(withAnnotations(ownerKey, `{"username":"bob"}`)), map[string]string{ownerKey: asOwner}},
		"required groups are inherited":                               {"guarded", alice, nil, testWorkspace(), map[string]string{ownerKey: asOwner, groupsKey: "admins"}},
		"inherited required groups are kept":                          {"guarded", alice, nil, testWorkspace(withAnnotations(groupsKey, "other")), map[string]string{ownerKey: asOwner, groupsKey: "admins"}},
		"required groups of the user are removed":                     {"plain", alice, nil, testWorkspace(withAnnotations(groupsKey, "mine")), map[string]string{ownerKey: asOwner}},
		"placement of the user is removed":                            {"plain", alice, nil, testWorkspace(withAnnotations(shardKey, "x", clusterKey, "c9", "mine", "1")), map[string]string{ownerKey: asOwner, "mine": "1"}},
		"masters are not owners":                                      {"plain", master, nil, testWorkspace(), map[string]string{}},
		"owner and placement of masters are kept":                     {"plain", master, nil, testWorkspace(withAnnotations(ownerKey, "o", clusterKey, "c9")), map[string]string{ownerKey: "o", clusterKey: "c9"}},
		"masters inherit required groups":                             {"guarded", master, nil, testWorkspace(), map[string]string{groupsKey: "admins"}},
		"required groups of masters are kept":                         {"guarded", master, nil, testWorkspace(withAnnotations(groupsKey, "other")), map[string]string{groupsKey: "other"}},
		"update keeps owner and groups":                               {"plain", alice, testWorkspace(withAnnotations(ownerKey, "o", groupsKey, "g")), testWorkspace(withAnnotations(ownerKey, "x")), map[string]string{ownerKey: "o", groupsKey: "g"}},
		"update adds neither owner nor groups":                        {"plain", alice, testWorkspace(), testWorkspace(withAnnotations(ownerKey, "x", groupsKey, "g")), map[string]string{}},
		"update keeps the placement":                                  {"plain", alice, testWorkspace(withAnnotations(shardKey, "a", clusterKey, "c1")), testWorkspace(withAnnotations(shardKey, "b", "mine", "1")), map[string]string{shardKey: "a", clusterKey: "c1", "mine": "1"}},
		"update by masters":                                           {"plain", master, testWorkspace(withAnnotations(ownerKey, "o", shardKey, "a")), testWorkspace(withAnnotations(ownerKey, "p", shardKey, "b")), map[string]string{ownerKey: "p", shardKey: "b"}},
		"update by logical cluster admins changes only the placement": {"plain", member(groupExternalLogicalClusterAdmin), testWorkspace(withAnnotations(ownerKey, "o", shardKey, "a")), testWorkspace(withAnnotations(ownerKey, "p", shardKey, "b")), map[string]string{ownerKey: "o", shardKey: "b"}},
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
		wantErr     string
	}{
		"create":                                             {cluster: "plain", by: alice, obj: testWorkspace()},
		"create in a missing logical cluster":                {cluster: "gone", by: alice, obj: testWorkspace(), wantErr: "the logical cluster does not exist"},
		"create with a cluster":                              {cluster: "plain", by: alice, obj: testWorkspace(func(w *tenancyv1alpha1.Workspace) { w.Spec.Cluster = "c" }), wantErr: "spec.cluster can only"},
		"create with a URL":                                  {cluster: "plain", by: alice, obj: testWorkspace(func(w *tenancyv1alpha1.Workspace) { w.Spec.URL = "u" }), wantErr: "spec.URL can only"},
		"update sets the cluster":                            {cluster: "plain", by: alice, old: testWorkspace(), obj: testWorkspace(withCluster), wantErr: "spec.cluster can only"},
		"update removes the cluster":                         {cluster: "plain", by: alice, old: testWorkspace(withCluster), obj: testWorkspace(), wantErr: "spec.cluster can only"},
		"update by kcp-admin sets the cluster":               {cluster: "plain", by: member("system:kcp:admin"), old: testWorkspace(), obj: testWorkspace(withCluster), wantErr: "spec.cluster can only"},
		"create with a cluster by masters":                   {cluster: "plain", by: master, obj: testWorkspace(withCluster)},
		"update by masters sets the cluster":                 {cluster: "plain", by: master, old: testWorkspace(), obj: testWorkspace(withCluster)},
		"update changes the type":                            {cluster: "plain", by: alice, old: testWorkspace(), obj: testWorkspace(retyped), wantErr: "spec.type is immutable"},
		"update by masters changes the type":                 {cluster: "plain", by: master, old: testWorkspace(), obj: testWorkspace(retyped), wantErr: "spec.type is immutable"},
		"update removes the type":                            {cluster: "plain", by: alice, old: testWorkspace(), obj: testWorkspace(untyped), wantErr: "spec.type is immutable"},
		"update changes labels":                              {cluster: "plain", by: alice, old: testWorkspace(withCluster), obj: testWorkspace(withCluster, func(w *tenancyv1alpha1.Workspace) { w.Labels = toMap([]string{"a", "b"}) })},
		"create a mount without the feature gate":            {cluster: "plain", by: alice, obj: testWorkspace(withMount), wantErr: "WorkspaceMounts is off"},
		"create a mount without the feature gate by masters": {cluster: "plain", by: master, obj: testWorkspace(withMount), wantErr: "WorkspaceMounts is off"},
		"update adds a mount":                                {cluster: "plain", by: alice, old: testWorkspace(), obj: testWorkspace(withMount), wantErr: "WorkspaceMounts is off"},
		"update of an existing mount":                        {cluster: "plain", by: alice, old: testWorkspace(withMount), obj: testWorkspace(withMount)},
		"status update":                                      {cluster: "plain", by: alice, old: testWorkspace(), obj: testWorkspace(withCluster), subresource: "status"},
	} {
		t.Run(name, func(t *testing.T) {
			q := testRequest{cluster: tc.cluster, resource: workspaces, subresource: tc.subresource, name: "team", user: tc.by, operation: admission.Create, obj: tc.obj}
			if tc.old != nil {
				q.operation, q.old = admission.Update, tc.old
			}
			wantForbidden(t, admitAndValidate(t, newWorkspace(state.config()), q), tc.wantErr)
		})
	}

	t.Run("owner that a later plug-in changed is rejected", func(t *testing.T) {
		q := testRequest{cluster: "plain", resource: workspaces, name: "team", user: alice, operation: admission.Create, obj: testWorkspace(withAnnotations(ownerKey, "bob"))}
		wantForbidden(t, validateOnly(t, newWorkspace(state.config()), q), "annotation "+ownerKey)
	})
	asOwner, err := encodeOwner(alice)
	if err != nil {
		t.Fatal(err)
	}
	for name, annotations := range map[string][]string{
		"required groups that the parent has got since the mutation":     {ownerKey, asOwner},
		"required groups that the parent has changed since the mutation": {ownerKey, asOwner, groupsKey, "others"},
	} {
		t.Run(name, func(t *testing.T) {
			q := testRequest{cluster: "guarded", resource: workspaces, name: "team", user: alice, operation: admission.Create, obj: testWorkspace(withAnnotations(annotations...))}
			if err := validateOnly(t, newWorkspace(state.config()), q); !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), groupsKey) {
				t.Errorf("got %v, want 429", err)
			}
		})
	}
	t.Run("required groups of a workspace are not changed by updates", func(t *testing.T) {
		q := testRequest{cluster: "guarded", resource: workspaces, name: "team", user: alice, operation: admission.Update, old: testWorkspace(withAnnotations(groupsKey, "g")), obj: testWorkspace()}
		wantForbidden(t, validateOnly(t, newWorkspace(state.config()), q), "annotation "+groupsKey)
	})
}

func TestWorkspaceFinalizer(t *testing.T) {
	withFinalizer := func(w *tenancyv1alpha1.Workspace) { w.Finalizers = []string{corev1alpha1.LogicalClusterFinalizer} }
	deleting := func(w *tenancyv1alpha1.Workspace) { w.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }
	for name, tc := range map[string]struct {
		by            user.Info
		old, obj      *tenancyv1alpha1.Workspace
		wantErr       string
		withFinalizer bool
	}{
		"removal by a tenant from a live workspace":  {by: alice, old: testWorkspace(withFinalizer), obj: testWorkspace(), withFinalizer: true},
		"removal by a tenant during deletion":        {by: alice, old: testWorkspace(withFinalizer, deleting), obj: testWorkspace(deleting), wantErr: "removing the finalizer"},
		"removal by kcp-admin during deletion":       {by: member("system:kcp:admin"), old: testWorkspace(withFinalizer, deleting), obj: testWorkspace(deleting), wantErr: "removing the finalizer"},
		"other update during deletion":               {by: alice, old: testWorkspace(withFinalizer, deleting), obj: testWorkspace(withFinalizer, deleting, withAnnotations("a", "b")), withFinalizer: true},
		"workspace that is not scheduled":            {by: alice, old: testWorkspace(), obj: testWorkspace()},
		"removal by masters":                         {by: master, old: testWorkspace(withFinalizer, deleting), obj: testWorkspace(deleting)},
		"removal by external logical cluster admins": {by: member(groupExternalLogicalClusterAdmin), old: testWorkspace(withFinalizer), obj: testWorkspace()},
	} {
		t.Run(name, func(t *testing.T) {
			q := testRequest{cluster: "plain", resource: workspaces, name: "team", user: tc.by, operation: admission.Update, old: tc.old, obj: tc.obj}
			wantForbidden(t, admitAndValidate(t, newWorkspace(newFakeShard().cluster("plain").config()), q), tc.wantErr)
			if got := len(tc.obj.Finalizers) == 1; got != tc.withFinalizer {
				t.Errorf("finalizers are %v", tc.obj.Finalizers)
			}
		})
	}
}

// wantForbidden fails unless err is a 403 that contains the text, or nil if the text is empty.
func wantForbidden(t *testing.T, err error, wantErr string) {
	t.Helper()
	switch {
	case wantErr == "" && err != nil:
		t.Fatalf("rejected: %v", err)
	case wantErr != "" && !apierrors.IsForbidden(err):
		t.Fatalf("got %v, want 403", err)
	case wantErr != "" && !strings.Contains(err.Error(), wantErr):
		t.Fatalf("%q does not contain %q", err, wantErr)
	}
}

func toJSON(m map[string]string) string {
	text, err := json.MarshalIndent(m, "", " ")
	if err != nil || len(m) == 0 {
		return "{}"
	}
	return string(text)
}
