// Package cacheserver reconciles CacheServers: a certificate authority of their own, the store where the operator runs it,
// and the pods. What an object looks like is decided in packages desired, pki and etcd, not here.
package cacheserver

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/etcd"
	"github.com/atoll-dev/atoll/controllers/etcdserver"
	"github.com/atoll-dev/atoll/controllers/ladder"
	"github.com/atoll-dev/atoll/controllers/pki"
	"github.com/atoll-dev/atoll/controllers/status"
)

// Reconciler brings CacheServers to their spec.
type Reconciler struct {
	Cluster  apply.Cluster
	Recorder events.EventRecorder
	Image    desired.Image // what runs where a spec names no image
}

// +kubebuilder:rbac:groups=operator.kcp.io,resources=cacheservers,verbs=get;list;watch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=cacheservers/status,verbs=get;patch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=cacheservers/finalizers,verbs=update

// scope is one CacheServer as it was observed, and what was found about it.
type scope struct {
	cache  *operatorv1alpha1.CacheServer
	before *operatorv1alpha1.CacheServer
	report status.Report

	references   status.Result // of the cache above; without a type when it is there, or none is wanted
	parent       *desired.CacheParent
	certificates status.Result
	store        status.Result // without a type where the store is not the operator's
	deployment   *appsv1.Deployment
}

func (s *scope) server() desired.CacheServer { return desired.NewCacheServer(s.cache) }

// Reconcile brings one CacheServer to its spec. Each step stands on those before it.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cache, err := ladder.Read[operatorv1alpha1.CacheServer](ctx, r.Cluster, req)
	if err != nil || cache == nil {
		return ctrl.Result{}, err
	}
	s := &scope{cache: cache, before: cache.DeepCopy()}
	if cache.DeletionTimestamp == nil { // else owner references do the rest
		err = ladder.Climb(ctx, s, r.specification, r.above, r.issue, r.keep, r.serve)
	}
	s.report.Transient = err
	computeStatus(s)
	return ladder.Look{Cluster: r.Cluster, Recorder: r.Recorder, Before: s.before, Object: s.cache}.End(ctx, &s.report, err)
}

// specification ends the ladder where nothing can come of the spec. What runs already is left alone, and looked at.
func (r *Reconciler) specification(ctx context.Context, s *scope) (err error) {
	result := validateSpec(s.cache)
	s.report.Set(result)
	if result.State != status.Stalled {
		return nil
	}
	s.deployment, err = ladder.Leave(ctx, r.Cluster, &s.report, s.cache.Namespace, s.server().Server())
	return err
}

// issue makes the certificate authority and the certificates below it.
func (r *Reconciler) issue(ctx context.Context, s *scope) error {
	objects := pki.CacheServer(s.cache, s.parent)
	if r.runsStore(s) {
		objects.Append(r.etcd(s).Certificates())
	}
	result, err := r.Cluster.CertificatesWithCA(ctx, s.cache.Namespace, objects, s.cache.Spec.Certificates)
	if err := apply.Settle(&s.report, result, err); err != nil {
		return err
	}
	s.certificates = s.report.Get(operatorv1alpha1.ConditionCertificatesReady)
	return nil
}

func (r *Reconciler) runsStore(s *scope) bool {
	return s.cache.Spec.Etcd != nil && s.cache.Spec.Etcd.Managed != nil
}

func (r *Reconciler) etcd(s *scope) etcd.Cluster {
	return etcd.New(s.server().AsOwner(), s.cache.Spec.Etcd, s.cache.Spec.Image)
}

// keep runs the store, where it is the operator's to run.
func (r *Reconciler) keep(ctx context.Context, s *scope) error {
	if !r.runsStore(s) {
		// What a cache holds is filled in again by the shards: an etcd that is left behind is nobody's last copy.
		return nil
	}
	if err := etcdserver.Reconcile(ctx, r.Cluster, &s.report, r.etcd(s), r.Image); err != nil {
		return err
	}
	s.store = s.report.Get(operatorv1alpha1.ConditionEtcdAvailable)
	return nil
}

// serve makes the Service, the kubeconfig that shards mount, and the pods.
func (r *Reconciler) serve(ctx context.Context, s *scope) error {
	result, err := r.provide(ctx, s)
	s.deployment, err = r.Cluster.SettleWorkload(ctx, &s.report, operatorv1alpha1.ConditionAvailable, s.cache.Namespace, s.server().Server(), result, err)
	return err
}

func (r *Reconciler) provide(ctx context.Context, s *scope) (status.Result, error) {
	const condition = operatorv1alpha1.ConditionAvailable
	server := s.server()
	if err := r.Cluster.Object(ctx, condition, desired.CacheServerService(server)); err != nil {
		return status.Result{}, err
	}
	kubeconfig, err := desired.CacheServerKubeconfig(server)
	if err != nil {
		return status.Result{}, err
	}
	if err := r.Cluster.Object(ctx, condition, kubeconfig); err != nil {
		return status.Result{}, err
	}
	if s.parent != nil && s.parent.Kubeconfig == "" {
		credentials, err := desired.ParentKubeconfigSecret(server, s.parent)
		if err != nil {
			return status.Result{}, err
		}
		if err := r.Cluster.Object(ctx, condition, credentials); err != nil {
			return status.Result{}, err
		}
	}
	var connection desired.Etcd
	if !server.IsEmbedded() {
		connection = etcd.Connection(server.AsOwner(), s.cache.Spec.Etcd)
	}
	return r.Cluster.Workload(ctx, &s.report, condition, desired.CacheServerDeployment(server, r.Image, connection, s.parent), s.references, s.certificates, s.store)
}

func computeStatus(s *scope) {
	out := &s.cache.Status
	out.ObservedGeneration = s.cache.Generation
	if s.cache.DeletionTimestamp != nil {
		out.Phase = operatorv1alpha1.CacheServerPhaseDeleting
		return
	}
	out.Conditions = s.report.Conditions(out.Conditions, s.cache.Generation)
	if s.store.Type == "" {
		meta.RemoveStatusCondition(&out.Conditions, operatorv1alpha1.ConditionEtcdAvailable)
	}
	out.Version, out.Endpoint = status.Version(s.deployment), s.server().URL()
	out.Phase = operatorv1alpha1.CacheServerPhaseProvisioning
	if meta.IsStatusConditionTrue(out.Conditions, operatorv1alpha1.ConditionAvailable) {
		out.Phase = operatorv1alpha1.CacheServerPhaseRunning
	}
}
