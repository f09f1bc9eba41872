// Package etcdserver creates the etcd that the operator runs for a shard or a cache server, and reports on its quorum. Package etcd
// renders its objects and decides which changes of the spec are possible.
package etcdserver

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/etcd"
	"github.com/atoll-dev/atoll/controllers/status"
	"github.com/atoll-dev/atoll/controllers/workload"
)

const condition = operatorv1alpha1.ConditionEtcdAvailable

// Store is the etcd of a shard or cache server during one reconcile. Its steps do nothing if the user runs the etcd.
type Store struct {
	Cluster apply.Cluster
	Gate    workload.Gate
	Report  *status.Report
	Now     func() time.Time
	Members Members

	managed *etcd.Cluster // nil if the user runs it
	live    *appsv1.StatefulSet
	problem status.PodProblem   // of the members
	desired *appsv1.StatefulSet // nil while nothing is applied
	files   apply.Files
	members members
}

// Input is the etcd of an object, as its spec describes it.
type Input struct {
	Cluster     etcd.Cluster
	Image       desired.Image
	Served      bool // the server that uses it has run
	Annotations map[string]string
	Status      *operatorv1alpha1.EtcdStatus
	// Replaced is the ID of the cluster whose data a Restore has replaced.
	Replaced string
}

// ObserveManaged reads the objects of an etcd that the operator runs.
func (s *Store) ObserveManaged(ctx context.Context, in Input) (err error) {
	managed := in.Cluster
	s.managed, s.desired = &managed, managed.StatefulSet(in.Image)
	namespace := managed.Owner().Namespace
	if s.live, err = apply.Get[appsv1.StatefulSet](ctx, s.Cluster, namespace, managed.Name()); err != nil {
		return err
	}
	if s.live != nil && s.live.Status.ReadyReplicas < managed.Members() {
		if s.problem, err = workload.ObservePods(ctx, s.Cluster, namespace, s.live.Spec.Selector); err != nil {
			return err
		}
	}
	mounts := desired.PodMounts(&s.desired.Spec.Template.Spec)
	if s.files, err = s.Cluster.ReadFiles(ctx, namespace, mounts.Secrets, mounts.ConfigMaps); err != nil {
		return err
	}
	return s.observeMembers(ctx, in)
}

// ObserveAbandoned reads the etcd that the operator ran for an owner before its spec named another one. It holds the data as long as it
// exists. A StatefulSet of that name with another owner is the user's own etcd.
func (s *Store) ObserveAbandoned(ctx context.Context, owner desired.Owner) error {
	live, err := apply.Get[appsv1.StatefulSet](ctx, s.Cluster, owner.Namespace, etcd.StatefulSetName(owner))
	if err == nil && live != nil && isOwnedBy(live, owner) {
		s.live = live
	}
	return err
}

// IsManaged reports whether the operator runs the etcd.
func (s *Store) IsManaged() bool { return s.managed != nil }

// Configure applies all objects of the etcd except its members, and reports why the members cannot be changed.
func (s *Store) Configure(ctx context.Context) error {
	if s.managed == nil {
		if rejection := etcd.ValidateRemoval(s.live); rejection != nil {
			s.Report.Set(status.Stall(condition, rejection.Reason, "%s", rejection.Message))
		}
		return nil
	}
	blocked, err := s.configure(ctx)
	if err != nil || blocked.Type != "" {
		s.desired = nil
		return s.Report.SetResult(blocked, err)
	}
	return nil
}

// configure returns why the members must not be changed, or a result without a type.
func (s *Store) configure(ctx context.Context) (status.Result, error) {
	for _, service := range s.managed.Services() {
		if err := s.Cluster.ApplyObject(ctx, condition, service); err != nil {
			return status.Result{}, err
		}
	}
	if budget := s.managed.DisruptionBudget(); budget != nil {
		if err := s.Cluster.ApplyObject(ctx, condition, budget); err != nil {
			return status.Result{}, err
		}
	}
	record := s.managed.RecordConfigMap(s.members.record)
	if err := s.Cluster.ApplyObject(ctx, condition, record); err != nil {
		return status.Result{}, err
	}
	s.files.Add(record)
	if s.live != nil {
		if rejection := etcd.ValidateUpdate(s.live, s.desired); rejection != nil {
			return status.Stall(condition, rejection.Reason, "%s", rejection.Message), nil
		}
		etcd.KeepImage(s.live, s.desired)
		if err := s.growVolumes(ctx); err != nil {
			return status.Result{}, err
		}
	}
	revisions, missing := s.files.Revisions(desired.PodMounts(&s.desired.Spec.Template.Spec))
	switch {
	case len(missing) == 0:
		s.managed.LabelCARevision(s.desired, revisions)
		return status.Result{}, nil
	case s.live == nil:
		return status.Wait(condition, apply.ReasonWaitingForCertificates, "etcd starts once its certificates are issued"), nil
	}
	return s.availability(s.live), nil
}

// AdmitRollout checks with the gate whether members may be replaced. Until they may, the StatefulSet keeps its pod
// template.
func (s *Store) AdmitRollout(ctx context.Context) error {
	if s.managed == nil || s.desired == nil {
		return nil
	}
	result, err := s.admitRollout(ctx)
	s.Report.SetWorst(result)
	return err
}

func (s *Store) admitRollout(ctx context.Context) (status.Result, error) {
	missing := ""
	switch {
	case s.live == nil:
	case s.members.decision.IsRepairing(): // a rollout would stop another member
		return workload.HoldStatefulSet(ctx, s.Gate, s.live, s.desired, "a member is being replaced")
	default:
		if available := s.availability(s.live); available.State != status.Satisfied {
			missing = available.Message
		}
	}
	return workload.AdmitStatefulSet(ctx, s.Gate, s.live, s.desired, missing)
}

// Apply applies the StatefulSet, with the pod template that the gate admitted, and reports on the quorum.
func (s *Store) Apply(ctx context.Context) error {
	if s.managed == nil || s.desired == nil {
		return nil
	}
	err := s.Cluster.ApplyObject(ctx, condition, s.desired)
	return s.Report.SetResult(s.availability(s.desired), err)
}

// availability reports on the quorum, or on why the cluster cannot have one.
func (s *Store) availability(live *appsv1.StatefulSet) status.Result {
	result, quorum := s.members.decision.Available, quorumResult(*s.managed, live, s.problem, s.Now())
	if result.Type == "" || result.State == status.Waiting && quorum.State != status.Satisfied {
		return quorum
	}
	return result
}

// quorumResult reports on the ready members. A quorum is sufficient, except while members are being replaced: servers that restart at
// that time could not connect.
func quorumResult(store etcd.Cluster, live *appsv1.StatefulSet, problem status.PodProblem, now time.Time) status.Result {
	ready, want := live.Status.ReadyReplicas, store.Members()
	switch {
	case live.Status.ObservedGeneration < live.Generation:
		return status.Wait(condition, "Updating", "StatefulSet %s is being updated", live.Name)
	case ready >= store.Quorum() && live.Status.UpdatedReplicas < want:
		return status.Wait(condition, "Updating", "%d of %d members run the newest revision%s", live.Status.UpdatedReplicas, want, problem.Suffix())
	case ready < store.Quorum():
		return status.PodsMissing(condition, "NoQuorum", problem, now, "%d of %d members are ready and %d are needed%s; see `kubectl -n %s describe pods -l app.kubernetes.io/component=etcd,app.kubernetes.io/instance=%s`",
			ready, want, store.Quorum(), problem.Suffix(), live.Namespace, live.Labels["app.kubernetes.io/instance"])
	default:
		return status.OK(condition, "Quorum", "%d of %d members are ready", ready, want)
	}
}

func isOwnedBy(live metav1.Object, owner desired.Owner) bool {
	for _, have := range live.GetOwnerReferences() {
		for _, want := range owner.References {
			if have.UID == want.UID {
				return true
			}
		}
	}
	return false
}
