package core

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
)

func TestStatusLabels(t *testing.T) {
	// Both values are the SHA-224 of the name, as printed by `printf 'root:universal' | sha224sum`.
	const universal = "d1d6459a03641b6fd7560fc2849f6c66fa971a0afeded6ba2d2743f2"
	key, value := InitializerLabel("root:universal")
	if value != universal || key != "initializer.internal.kcp.io/"+universal[:35] || len(key) != 63 {
		t.Errorf("initializer label %s=%s", key, value)
	}
	terminatorKey, terminatorValue := TerminatorLabel("root:universal")
	if terminatorValue != universal || terminatorKey != "terminator.internal.kcp.io/"+universal[:36] || len(terminatorKey) != 63 {
		t.Errorf("terminator label %s=%s", terminatorKey, terminatorValue)
	}

	got := StatusLabels(map[string]string{"own": "x", "initializer.internal.kcp.io/gone": "y"}, corev1alpha1.LogicalClusterStatus{
		Phase: "Initializing", Initializers: []corev1alpha1.LogicalClusterInitializer{"root:universal"},
	})
	if len(got) != 3 || got["own"] != "x" || got[corev1alpha1.PhaseLabelKey] != "Initializing" || got[key] != value {
		t.Errorf("got %v", got)
	}
}

func TestTrimmedOwner(t *testing.T) {
	for name, tc := range map[string]struct{ in, want string }{
		"drops groups and extra": {`{"username":"alice","uid":"1","groups":["g"],"extra":{"a":["b"]}}`, `{"username":"alice"}`},
		"keeps a trimmed owner":  {`{"username":"alice"}`, `{"username":"alice"}`},
		"keeps an invalid owner": {`alice`, `alice`},
	} {
		t.Run(name, func(t *testing.T) {
			annotations := map[string]string{tenancyv1alpha1.ExperimentalWorkspaceOwnerAnnotationKey: tc.in}
			if got := WithTrimmedOwner(annotations)[tenancyv1alpha1.ExperimentalWorkspaceOwnerAnnotationKey]; got != tc.want {
				t.Errorf("got %s", got)
			}
		})
	}
	if none := WithTrimmedOwner(map[string]string{}); len(none) != 0 {
		t.Errorf("made an owner up: %v", none)
	}
}

func TestDeriveMetadata(t *testing.T) {
	const finalizer = corev1alpha1.LogicalClusterHasTerminatorsFinalizer
	now := metav1.Now()
	for name, tc := range map[string]struct {
		deleting *metav1.Time
		status   corev1alpha1.LogicalClusterStatus
		before   []string
		want     []string
	}{
		"terminators add the finalizer":             {nil, corev1alpha1.LogicalClusterStatus{Terminators: []corev1alpha1.LogicalClusterTerminator{"root:a"}}, []string{"x/y"}, []string{"x/y", finalizer}},
		"no terminators remove it":                  {nil, corev1alpha1.LogicalClusterStatus{}, []string{finalizer, "x/y"}, []string{"x/y"}},
		"no finalizer is added during deletion":     {&now, corev1alpha1.LogicalClusterStatus{Terminators: []corev1alpha1.LogicalClusterTerminator{"root:a"}}, []string{"x/y"}, []string{"x/y"}},
		"the deletion removes the finalizer itself": {&now, corev1alpha1.LogicalClusterStatus{}, []string{finalizer}, []string{finalizer}},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := &corev1alpha1.LogicalCluster{Status: tc.status}
			cluster.DeletionTimestamp, cluster.Finalizers = tc.deleting, tc.before
			deriveMetadata(cluster)
			if !slices.Equal(cluster.Finalizers, tc.want) {
				t.Errorf("got %v", cluster.Finalizers)
			}
		})
	}
}
