// Package frontproxy reconciles FrontProxies: certificates, configuration and pods of the door to an installation. What an
// object looks like is decided in packages desired and pki, not here.
package frontproxy

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/ladder"
	"github.com/atoll-dev/atoll/controllers/pki"
	"github.com/atoll-dev/atoll/controllers/proxyserver"
	"github.com/atoll-dev/atoll/controllers/shardbase"
	"github.com/atoll-dev/atoll/controllers/status"
)

// Reconciler brings FrontProxies to their spec.
type Reconciler struct {
	Cluster  apply.Cluster
	Recorder events.EventRecorder
	Image    desired.Image // what runs where a spec names no image
}

// +kubebuilder:rbac:groups=operator.kcp.io,resources=frontproxies,verbs=get;list;watch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=frontproxies/status,verbs=get;patch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=frontproxies/finalizers,verbs=update

// scope is one FrontProxy as it was observed, and what was found about it.
type scope struct {
	front  *operatorv1alpha1.FrontProxy
	before *operatorv1alpha1.FrontProxy
	root   *operatorv1alpha1.RootShard // nil while the reference does not resolve
	report status.Report

	deployment *appsv1.Deployment
}

// Reconcile brings one FrontProxy to its spec.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	front, err := ladder.Read[operatorv1alpha1.FrontProxy](ctx, r.Cluster, req)
	if err != nil || front == nil {
		return ctrl.Result{}, err
	}
	s := &scope{front: front, before: front.DeepCopy()}
	if front.DeletionTimestamp == nil { // else owner references do the rest
		err = ladder.Climb(ctx, s, r.rootShard, r.proxy)
	}
	s.report.Transient = err
	computeStatus(s)
	return ladder.Look{Cluster: r.Cluster, Recorder: r.Recorder, Before: s.before, Object: s.front}.End(ctx, &s.report, err)
}

// rootShard resolves the reference. Without it nothing can be made; what runs already is left alone, and looked at.
func (r *Reconciler) rootShard(ctx context.Context, s *scope) error {
	root, result, err := shardbase.RootShard(ctx, r.Cluster, s.front.Namespace, s.front.Spec.RootShard)
	if err != nil {
		return err
	}
	s.report.Set(result)
	if root != nil {
		result := validateSpec(s.front, root)
		s.report.Set(result)
		if result.State != status.Stalled {
			s.root = root
			return nil
		}
	}
	s.deployment, err = ladder.Leave(ctx, r.Cluster, &s.report, s.front.Namespace, desired.NewFrontProxy(s.front, nil).Server())
	return err
}

func (r *Reconciler) proxy(ctx context.Context, s *scope) error {
	shards, err := shardbase.Shards(ctx, r.Cluster, s.root)
	if err != nil {
		return err
	}
	signers, err := shardbase.Signers(ctx, r.Cluster, s.root, shards)
	if err != nil {
		return err
	}
	proxy := desired.NewFrontProxy(s.front, s.root, signers...)
	result, err := r.Cluster.Certificates(ctx, pki.Proxy(proxy, s.root))
	if err := apply.Settle(&s.report, result, err); err != nil {
		return err
	}
	gate := s.report.Get(operatorv1alpha1.ConditionCertificatesReady)
	s.deployment, err = proxyserver.Reconcile(ctx, r.Cluster, &s.report, operatorv1alpha1.ConditionAvailable, s.root, proxy, r.Image, gate)
	return err
}

func computeStatus(s *scope) {
	out := &s.front.Status
	out.ObservedGeneration = s.front.Generation
	if s.front.DeletionTimestamp != nil {
		out.Phase = operatorv1alpha1.FrontProxyPhaseDeleting
		return
	}
	out.Conditions = s.report.Conditions(out.Conditions, s.front.Generation)
	out.Version = status.Version(s.deployment)
	out.Endpoint = ""
	if s.root != nil {
		out.Endpoint = desired.FrontProxyURL(s.front, s.root)
	}
	out.Phase = operatorv1alpha1.FrontProxyPhaseProvisioning
	if meta.IsStatusConditionTrue(out.Conditions, operatorv1alpha1.ConditionAvailable) {
		out.Phase = operatorv1alpha1.FrontProxyPhaseRunning
	}
}
