package admissiontest

import (
	"encoding/json"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// Annotations of workspaces and logical clusters.
const (
	OwnerKey  = tenancyv1alpha1.ExperimentalWorkspaceOwnerAnnotationKey
	GroupsKey = corev1alpha1.RequiredGroupsAnnotationKey
	TypeKey   = corev1alpha1.LogicalClusterTypeAnnotationKey
)

// Workspace returns a workspace with changes applied.
func Workspace(changes ...func(*tenancyv1alpha1.Workspace)) *tenancyv1alpha1.Workspace {
	w := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}
	w.Spec.Type = &tenancyv1alpha1.WorkspaceTypeReference{Name: "universal", Path: "root"}
	for _, change := range changes {
		change(w)
	}
	return w
}

// TypeReference returns a reference to a type.
func TypeReference(path, name string) tenancyv1alpha1.WorkspaceTypeReference {
	return tenancyv1alpha1.WorkspaceTypeReference{Path: path, Name: tenancyv1alpha1.WorkspaceTypeName(name)}
}

// WorkspaceType returns a type at a path, with changes applied.
func WorkspaceType(path, name string, changes ...func(*tenancyv1alpha1.WorkspaceTypeSpec)) *tenancyv1alpha1.WorkspaceType {
	w := &tenancyv1alpha1.WorkspaceType{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: ToMap([]string{logicalcluster.PathAnnotationKey, path})}}
	for _, change := range changes {
		change(&w.Spec)
	}
	return w
}

// Extending makes a type extend others.
func Extending(refs ...tenancyv1alpha1.WorkspaceTypeReference) func(*tenancyv1alpha1.WorkspaceTypeSpec) {
	return func(s *tenancyv1alpha1.WorkspaceTypeSpec) { s.Extend.With = refs }
}

// ClusterChange changes a logical cluster.
type ClusterChange = func(*corev1alpha1.LogicalCluster)

// LogicalCluster returns a logical cluster in a phase, with changes applied.
func LogicalCluster(phase corev1alpha1.LogicalClusterPhaseType, changes ...ClusterChange) *corev1alpha1.LogicalCluster {
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

// WithAnnotations sets annotations given as key, value, key, value.
func WithAnnotations(list ...string) ClusterChange {
	return func(c *corev1alpha1.LogicalCluster) { c.Annotations = ToMap(list) }
}

// WantForbidden fails unless err is a 403 that contains the text, or nil if the text is empty.
func WantForbidden(t *testing.T, err error, wantErr string) {
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

// ToJSON returns the text of a map, for comparisons.
func ToJSON(m map[string]string) string {
	text, err := json.MarshalIndent(m, "", " ")
	if err != nil || len(m) == 0 {
		return "{}"
	}
	return string(text)
}
