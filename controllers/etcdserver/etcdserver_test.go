package etcdserver

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/etcd"
	"github.com/atoll-dev/atoll/controllers/status"
)

func TestQuorum(t *testing.T) {
	root := &operatorv1alpha1.RootShard{ObjectMeta: metav1.ObjectMeta{Name: "root", Namespace: "kcp"}}
	root.Spec.Etcd = &operatorv1alpha1.EtcdConfig{Managed: &operatorv1alpha1.ManagedEtcd{Replicas: ptr.To[int32](3)}}
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	crashLoop := func(since time.Duration) status.PodProblem {
		return status.PodProblem{Message: "container etcd exits with code 1: disk full", Since: now.Add(-since)}
	}
	for name, tc := range map[string]struct {
		observed       int64
		ready, updated int32
		kind           status.State
		problem        status.PodProblem
		reason         string
	}{
		"all members":        {2, 3, 3, status.Satisfied, status.PodProblem{}, "Quorum"},
		"a member lost":      {2, 2, 3, status.Satisfied, status.PodProblem{}, "Quorum"},
		"two members lost":   {2, 1, 3, status.Waiting, status.PodProblem{}, "NoQuorum"},
		"members that crash": {2, 1, 3, status.Waiting, crashLoop(time.Minute), "NoQuorum"},
		"members that crash for long need the user":       {2, 1, 3, status.Stalled, crashLoop(time.Hour), "NoQuorum"},
		"a new member that crashes stops the replacement": {2, 2, 1, status.Waiting, crashLoop(time.Minute), "Updating"},
		"members that are being replaced are waited for":  {2, 3, 1, status.Waiting, status.PodProblem{}, "Updating"},
		"a change that is not observed yet is waited for": {1, 3, 3, status.Waiting, status.PodProblem{}, "Updating"},
	} {
		t.Run(name, func(t *testing.T) {
			result := quorumResult(etcd.NewForShard(desired.NewRootShard(root)), &appsv1.StatefulSet{
				ObjectMeta: metav1.ObjectMeta{Name: "root-etcd", Generation: 2},
				Status:     appsv1.StatefulSetStatus{ObservedGeneration: tc.observed, ReadyReplicas: tc.ready, UpdatedReplicas: tc.updated},
			}, tc.problem, now)
			if result.State != tc.kind || result.Reason != tc.reason || !strings.Contains(result.Message, tc.problem.Suffix()) {
				t.Errorf("got %+v", result)
			}
		})
	}
}
