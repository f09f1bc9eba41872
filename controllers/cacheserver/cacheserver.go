// Package cacheserver reconciles CacheServers: their own certificate authority, the etcd if the operator runs it, and the server.
// Packages desired, pki and etcd render the objects.
package cacheserver

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/dependencies"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/etcd"
	"github.com/atoll-dev/atoll/controllers/etcdserver"
	"github.com/atoll-dev/atoll/controllers/pki"
	"github.com/atoll-dev/atoll/controllers/reconcile"
	"github.com/atoll-dev/atoll/controllers/server"
	"github.com/atoll-dev/atoll/controllers/status"
)

// +kubebuilder:rbac:groups=operator.kcp.io,resources=cacheservers,verbs=get;list;watch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=cacheservers/status,verbs=get;patch
// +kubebuilder:rbac:groups=operator.kcp.io,resources=cacheservers/finalizers,verbs=update

// NewReconciler returns the reconciler of CacheServers.
func NewReconciler(config reconcile.Config) *reconcile.Reconciler[*operatorv1alpha1.CacheServer] {
	return &reconcile.Reconciler[*operatorv1alpha1.CacheServer]{
		Config: config,
		Watches: reconcile.Watches[*operatorv1alpha1.CacheServer]{
			Name:       "cacheserver",
			For:        &operatorv1alpha1.CacheServer{},
			List:       &operatorv1alpha1.CacheServerList{},
			Owns:       slices.Concat(reconcile.ServerKinds(), reconcile.StoreKinds()),
			References: []client.Object{&operatorv1alpha1.CacheServer{}, &operatorv1alpha1.RootShard{}},
			Files:      reconcile.FileKinds(),
		},
		NewScope: func(cache *operatorv1alpha1.CacheServer, report *status.Report) reconcile.Scope {
			desiredServer := desired.NewCacheServer(cache)
			return &scope{
				Scope: server.NewScope(config, report, cache.Namespace, desiredServer.Server()), cache: cache, server: desiredServer,
			}
		},
	}
}

// scope is one CacheServer during a reconcile.
type scope struct {
	server.Scope
	cache  *operatorv1alpha1.CacheServer
	server desired.CacheServer

	parent   *desired.CacheParent // nil if the spec names none, or while it does not resolve
	caSource status.Result
}

// Observe implements reconcile.Scope.
func (s *scope) Observe(ctx context.Context) (err error) {
	if err := s.Deployment.Observe(ctx); err != nil {
		return err
	}
	if s.Spec = validateSpec(s.cache); s.Spec.State == status.Stalled {
		return nil
	}
	if conflict, err := dependencies.ResolveEtcdConflict(ctx, s.Cluster, s.cache); err != nil || conflict.Type != "" {
		s.Spec = conflict
		return err
	}
	if s.parent, s.References, err = findParent(ctx, s.Cluster, s.cache); err != nil {
		return err
	}
	if s.caSource, err = s.Cluster.ObserveCASource(ctx, s.cache.Namespace, s.cache.Spec.Certificates); err != nil {
		return err
	}
	// An etcd that was removed from the spec is ignored: shards publish their objects to the cache again.
	if s.isEtcdManaged() {
		if err := s.Etcd.ObserveManaged(ctx, etcdserver.Input{
			Cluster: s.managedEtcd(), Image: s.Image, Served: s.Deployment.Live() != nil, Annotations: s.cache.Annotations, Status: s.cache.Status.Etcd,
		}); err != nil {
			return err
		}
	}
	s.CheckEndpoints(ctx, s.cache.Namespace, s.cache.Spec.Etcd)
	var connection desired.Etcd
	if !s.server.IsEmbedded() {
		connection = etcd.Connection(s.server.AsOwner(), s.cache.Spec.Etcd)
		connection.Owner = s.server.EtcdOwner(s.ClusterID)
	}
	rendered, err := s.server.Render(s.Image, connection, s.parent)
	if err != nil {
		return err
	}
	return s.Deployment.SetDesired(ctx, rendered)
}

// Steps implements reconcile.Scope.
func (s *scope) Steps() []reconcile.Step {
	return s.EtcdServerSteps(s.issueCertificates)
}

// issueCertificates applies the certificate authority and the certificates below it.
func (s *scope) issueCertificates(ctx context.Context) error {
	objects := pki.CacheServer(s.cache, s.parent)
	if s.isEtcdManaged() {
		objects.Append(s.managedEtcd().Certificates())
	}
	if parent := s.cache.Spec.Parent; parent == nil || parent.KubeconfigSecretRef != nil {
		s.Issued = objects.Secrets()
	}
	return s.Report.SetResult(s.Cluster.ApplyCertificatesWithCA(ctx, objects, s.caSource))
}

// isEtcdManaged reports whether the operator runs an etcd for the cache server. Without an etcd the store is embedded.
func (s *scope) isEtcdManaged() bool {
	return s.cache.Spec.Etcd != nil && s.cache.Spec.Etcd.Managed != nil
}

func (s *scope) managedEtcd() etcd.Cluster {
	return etcd.New(s.server.AsOwner(), s.cache.Spec.Etcd, s.cache.Spec.Image)
}

// SetStatus implements reconcile.Scope.
func (s *scope) SetStatus() {
	out := &s.cache.Status
	out.ObservedGeneration = s.cache.Generation
	if s.cache.DeletionTimestamp != nil {
		out.Phase = operatorv1alpha1.CacheServerPhaseDeleting
		return
	}
	if !s.isEtcdManaged() {
		s.Report.RemoveCondition(operatorv1alpha1.ConditionEtcdAvailable)
		s.Report.RemoveCondition(operatorv1alpha1.ConditionEtcdHealthy)
	}
	out.Etcd = s.Etcd.Status(out.Etcd)
	out.Conditions = s.Report.Conditions(out.Conditions, s.cache.Generation)
	out.Version, out.Endpoint = status.Version(s.Deployment.Live()), s.server.URL()
	out.Phase = operatorv1alpha1.CacheServerPhaseProvisioning
	if meta.IsStatusConditionTrue(out.Conditions, operatorv1alpha1.ConditionAvailable) {
		out.Phase = operatorv1alpha1.CacheServerPhaseRunning
	}
}
