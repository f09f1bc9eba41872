package tenancy

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
	"github.com/atoll-dev/atoll/shardserver/admission/admissiontest"
	"github.com/atoll-dev/atoll/shardserver/admission/rules"
)

const (
	shardKey   = corev1alpha1.ShardAnnotationKey
	clusterKey = tenancyv1alpha1.WorkspaceClusterAnnotationKey
)

func withAnnotations(annotations ...string) func(*tenancyv1alpha1.Workspace) {
	return func(w *tenancyv1alpha1.Workspace) { w.Annotations = admissiontest.ToMap(annotations) }
}

func withCluster(w *tenancyv1alpha1.Workspace) {
	w.Spec.Cluster, w.Spec.URL = "c1", "https://kcp/clusters/c1"
}

func withMount(w *tenancyv1alpha1.Workspace) {
	w.Spec.Mount = &tenancyv1alpha1.Mount{Reference: tenancyv1alpha1.ObjectReference{APIVersion: "v1", Kind: "K", Name: "n"}}
}

func TestWorkspaceAnnotations(t *testing.T) {
	state := admissiontest.NewShard().Cluster("plain").Cluster("guarded", admissiontest.GroupsKey, "admins")
	asOwner, err := encodeOwner(admissiontest.Alice)
	if err != nil {
		t.Fatal(err)
	}

	for name, tc := range map[string]struct {
		cluster  string
		by       user.Info
		old, obj *tenancyv1alpha1.Workspace
		want     map[string]string
	}{
		"creator is the owner":                                        {"plain", admissiontest.Alice, nil, admissiontest.Workspace(), map[string]string{admissiontest.OwnerKey: asOwner}},
		"owner of the user is replaced":                               {"plain", admissiontest.Alice, nil, admissiontest.Workspace(withAnnotations(admissiontest.OwnerKey, `{"username":"bob"}`)), map[string]string{admissiontest.OwnerKey: asOwner}},
		"required groups are inherited":                               {"guarded", admissiontest.Alice, nil, admissiontest.Workspace(), map[string]string{admissiontest.OwnerKey: asOwner, admissiontest.GroupsKey: "admins"}},
		"inherited required groups are kept":                          {"guarded", admissiontest.Alice, nil, admissiontest.Workspace(withAnnotations(admissiontest.GroupsKey, "other")), map[string]string{admissiontest.OwnerKey: asOwner, admissiontest.GroupsKey: "admins"}},
		"required groups of the user are removed":                     {"plain", admissiontest.Alice, nil, admissiontest.Workspace(withAnnotations(admissiontest.GroupsKey, "mine")), map[string]string{admissiontest.OwnerKey: asOwner}},
		"placement of the user is removed":                            {"plain", admissiontest.Alice, nil, admissiontest.Workspace(withAnnotations(shardKey, "x", clusterKey, "c9", "mine", "1")), map[string]string{admissiontest.OwnerKey: asOwner, "mine": "1"}},
		"masters are not owners":                                      {"plain", admissiontest.Master, nil, admissiontest.Workspace(), map[string]string{}},
		"owner and placement of masters are kept":                     {"plain", admissiontest.Master, nil, admissiontest.Workspace(withAnnotations(admissiontest.OwnerKey, "o", clusterKey, "c9")), map[string]string{admissiontest.OwnerKey: "o", clusterKey: "c9"}},
		"masters inherit required groups":                             {"guarded", admissiontest.Master, nil, admissiontest.Workspace(), map[string]string{admissiontest.GroupsKey: "admins"}},
		"required groups of masters are kept":                         {"guarded", admissiontest.Master, nil, admissiontest.Workspace(withAnnotations(admissiontest.GroupsKey, "other")), map[string]string{admissiontest.GroupsKey: "other"}},
		"update keeps owner and groups":                               {"plain", admissiontest.Alice, admissiontest.Workspace(withAnnotations(admissiontest.OwnerKey, "o", admissiontest.GroupsKey, "g")), admissiontest.Workspace(withAnnotations(admissiontest.OwnerKey, "x")), map[string]string{admissiontest.OwnerKey: "o", admissiontest.GroupsKey: "g"}},
		"update adds neither owner nor groups":                        {"plain", admissiontest.Alice, admissiontest.Workspace(), admissiontest.Workspace(withAnnotations(admissiontest.OwnerKey, "x", admissiontest.GroupsKey, "g")), map[string]string{}},
		"update keeps the placement":                                  {"plain", admissiontest.Alice, admissiontest.Workspace(withAnnotations(shardKey, "a", clusterKey, "c1")), admissiontest.Workspace(withAnnotations(shardKey, "b", "mine", "1")), map[string]string{shardKey: "a", clusterKey: "c1", "mine": "1"}},
		"update by masters":                                           {"plain", admissiontest.Master, admissiontest.Workspace(withAnnotations(admissiontest.OwnerKey, "o", shardKey, "a")), admissiontest.Workspace(withAnnotations(admissiontest.OwnerKey, "p", shardKey, "b")), map[string]string{admissiontest.OwnerKey: "p", shardKey: "b"}},
		"update by logical cluster admins changes only the placement": {"plain", admissiontest.Member(rules.GroupExternalLogicalClusterAdmin), admissiontest.Workspace(withAnnotations(admissiontest.OwnerKey, "o", shardKey, "a")), admissiontest.Workspace(withAnnotations(admissiontest.OwnerKey, "p", shardKey, "b")), map[string]string{admissiontest.OwnerKey: "o", shardKey: "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			q := admissiontest.Request{Cluster: tc.cluster, Resource: rules.Workspaces, Name: "team", User: tc.by, Operation: admission.Create, Object: tc.obj}
			if tc.old != nil {
				q.Operation, q.Old = admission.Update, tc.old
			}
			if err := admissiontest.AdmitAndValidate(t, NewWorkspace(state.Config()), q); err != nil {
				t.Fatal(err)
			}
			if got, want := admissiontest.ToJSON(tc.obj.Annotations), admissiontest.ToJSON(tc.want); got != want {
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
	state := admissiontest.NewShard().Cluster("plain").Cluster("guarded", admissiontest.GroupsKey, "admins")
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
		"create":                                             {cluster: "plain", by: admissiontest.Alice, obj: admissiontest.Workspace()},
		"create in a missing logical cluster":                {cluster: "gone", by: admissiontest.Alice, obj: admissiontest.Workspace(), wantErr: "the logical cluster does not exist"},
		"create with a cluster":                              {cluster: "plain", by: admissiontest.Alice, obj: admissiontest.Workspace(func(w *tenancyv1alpha1.Workspace) { w.Spec.Cluster = "c" }), wantErr: "spec.cluster can only"},
		"create with a URL":                                  {cluster: "plain", by: admissiontest.Alice, obj: admissiontest.Workspace(func(w *tenancyv1alpha1.Workspace) { w.Spec.URL = "u" }), wantErr: "spec.URL can only"},
		"update sets the cluster":                            {cluster: "plain", by: admissiontest.Alice, old: admissiontest.Workspace(), obj: admissiontest.Workspace(withCluster), wantErr: "spec.cluster can only"},
		"update removes the cluster":                         {cluster: "plain", by: admissiontest.Alice, old: admissiontest.Workspace(withCluster), obj: admissiontest.Workspace(), wantErr: "spec.cluster can only"},
		"update by kcp-admin sets the cluster":               {cluster: "plain", by: admissiontest.Member("system:kcp:admin"), old: admissiontest.Workspace(), obj: admissiontest.Workspace(withCluster), wantErr: "spec.cluster can only"},
		"create with a cluster by masters":                   {cluster: "plain", by: admissiontest.Master, obj: admissiontest.Workspace(withCluster)},
		"update by masters sets the cluster":                 {cluster: "plain", by: admissiontest.Master, old: admissiontest.Workspace(), obj: admissiontest.Workspace(withCluster)},
		"update changes the type":                            {cluster: "plain", by: admissiontest.Alice, old: admissiontest.Workspace(), obj: admissiontest.Workspace(retyped), wantErr: "spec.type is immutable"},
		"update by masters changes the type":                 {cluster: "plain", by: admissiontest.Master, old: admissiontest.Workspace(), obj: admissiontest.Workspace(retyped), wantErr: "spec.type is immutable"},
		"update removes the type":                            {cluster: "plain", by: admissiontest.Alice, old: admissiontest.Workspace(), obj: admissiontest.Workspace(untyped), wantErr: "spec.type is immutable"},
		"update changes labels":                              {cluster: "plain", by: admissiontest.Alice, old: admissiontest.Workspace(withCluster), obj: admissiontest.Workspace(withCluster, func(w *tenancyv1alpha1.Workspace) { w.Labels = admissiontest.ToMap([]string{"a", "b"}) })},
		"create a mount without the feature gate":            {cluster: "plain", by: admissiontest.Alice, obj: admissiontest.Workspace(withMount), wantErr: "WorkspaceMounts is off"},
		"create a mount without the feature gate by masters": {cluster: "plain", by: admissiontest.Master, obj: admissiontest.Workspace(withMount), wantErr: "WorkspaceMounts is off"},
		"update adds a mount":                                {cluster: "plain", by: admissiontest.Alice, old: admissiontest.Workspace(), obj: admissiontest.Workspace(withMount), wantErr: "WorkspaceMounts is off"},
		"update of an existing mount":                        {cluster: "plain", by: admissiontest.Alice, old: admissiontest.Workspace(withMount), obj: admissiontest.Workspace(withMount)},
		"status update":                                      {cluster: "plain", by: admissiontest.Alice, old: admissiontest.Workspace(), obj: admissiontest.Workspace(withCluster), subresource: "status"},
	} {
		t.Run(name, func(t *testing.T) {
			q := admissiontest.Request{Cluster: tc.cluster, Resource: rules.Workspaces, Subresource: tc.subresource, Name: "team", User: tc.by, Operation: admission.Create, Object: tc.obj}
			if tc.old != nil {
				q.Operation, q.Old = admission.Update, tc.old
			}
			admissiontest.WantForbidden(t, admissiontest.AdmitAndValidate(t, NewWorkspace(state.Config()), q), tc.wantErr)
		})
	}

	t.Run("owner that a later plug-in changed is rejected", func(t *testing.T) {
		q := admissiontest.Request{Cluster: "plain", Resource: rules.Workspaces, Name: "team", User: admissiontest.Alice, Operation: admission.Create, Object: admissiontest.Workspace(withAnnotations(admissiontest.OwnerKey, "bob"))}
		admissiontest.WantForbidden(t, admissiontest.ValidateOnly(t, NewWorkspace(state.Config()), q), "annotation "+admissiontest.OwnerKey)
	})
	asOwner, err := encodeOwner(admissiontest.Alice)
	if err != nil {
		t.Fatal(err)
	}
	for name, annotations := range map[string][]string{
		"required groups that the parent has got since the mutation":     {admissiontest.OwnerKey, asOwner},
		"required groups that the parent has changed since the mutation": {admissiontest.OwnerKey, asOwner, admissiontest.GroupsKey, "others"},
	} {
		t.Run(name, func(t *testing.T) {
			q := admissiontest.Request{Cluster: "guarded", Resource: rules.Workspaces, Name: "team", User: admissiontest.Alice, Operation: admission.Create, Object: admissiontest.Workspace(withAnnotations(annotations...))}
			if err := admissiontest.ValidateOnly(t, NewWorkspace(state.Config()), q); !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), admissiontest.GroupsKey) {
				t.Errorf("got %v, want 429", err)
			}
		})
	}
	t.Run("required groups of a workspace are not changed by updates", func(t *testing.T) {
		q := admissiontest.Request{Cluster: "guarded", Resource: rules.Workspaces, Name: "team", User: admissiontest.Alice, Operation: admission.Update, Old: admissiontest.Workspace(withAnnotations(admissiontest.GroupsKey, "g")), Object: admissiontest.Workspace()}
		admissiontest.WantForbidden(t, admissiontest.ValidateOnly(t, NewWorkspace(state.Config()), q), "annotation "+admissiontest.GroupsKey)
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
		"removal by a tenant from a live workspace":  {by: admissiontest.Alice, old: admissiontest.Workspace(withFinalizer), obj: admissiontest.Workspace(), withFinalizer: true},
		"removal by a tenant during deletion":        {by: admissiontest.Alice, old: admissiontest.Workspace(withFinalizer, deleting), obj: admissiontest.Workspace(deleting), wantErr: "removing the finalizer"},
		"removal by kcp-admin during deletion":       {by: admissiontest.Member("system:kcp:admin"), old: admissiontest.Workspace(withFinalizer, deleting), obj: admissiontest.Workspace(deleting), wantErr: "removing the finalizer"},
		"other update during deletion":               {by: admissiontest.Alice, old: admissiontest.Workspace(withFinalizer, deleting), obj: admissiontest.Workspace(withFinalizer, deleting, withAnnotations("a", "b")), withFinalizer: true},
		"workspace that is not scheduled":            {by: admissiontest.Alice, old: admissiontest.Workspace(), obj: admissiontest.Workspace()},
		"removal by masters":                         {by: admissiontest.Master, old: admissiontest.Workspace(withFinalizer, deleting), obj: admissiontest.Workspace(deleting)},
		"removal by external logical cluster admins": {by: admissiontest.Member(rules.GroupExternalLogicalClusterAdmin), old: admissiontest.Workspace(withFinalizer), obj: admissiontest.Workspace()},
	} {
		t.Run(name, func(t *testing.T) {
			q := admissiontest.Request{Cluster: "plain", Resource: rules.Workspaces, Name: "team", User: tc.by, Operation: admission.Update, Old: tc.old, Object: tc.obj}
			admissiontest.WantForbidden(t, admissiontest.AdmitAndValidate(t, NewWorkspace(admissiontest.NewShard().Cluster("plain").Config()), q), tc.wantErr)
			if got := len(tc.obj.Finalizers) == 1; got != tc.withFinalizer {
				t.Errorf("finalizers are %v", tc.obj.Finalizers)
			}
		})
	}
}
