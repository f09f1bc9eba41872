// Package shardtest provides the storage of a shard without its server to tests of authentication and authorization: an
// embedded etcd, the stock registries and the decorator of package storage. It must not be used outside of tests.
package shardtest

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	rbacapi "k8s.io/kubernetes/pkg/apis/rbac"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	secretstorage "k8s.io/kubernetes/pkg/registry/core/secret/storage"
	accountstorage "k8s.io/kubernetes/pkg/registry/core/serviceaccount/storage"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/internal/embeddedetcd"
	"github.com/atoll-dev/atoll/internal/etcdtest"
	"github.com/atoll-dev/atoll/logicalcluster"
	kcpcore "github.com/atoll-dev/atoll/shardserver/apis/core"
	kcprbac "github.com/atoll-dev/atoll/shardserver/apis/rbac"
	"github.com/atoll-dev/atoll/shardserver/authorization"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// Masters may write everything, like the bootstrap.
var Masters = &user.DefaultInfo{Name: "test", Groups: []string{authorization.GroupMasters}}

// Shard is the storage of a shard and an authorizer over it.
type Shard struct {
	Registry   *storage.Registry
	Authorizer *authorization.Authorizer

	stores map[schema.GroupResource]rest.Storage
}

// Start creates the storage and stops it at the end of the test.
func Start(t testing.TB) *Shard {
	t.Helper()
	server := etcdtest.Start(t)
	options := restOptions{server}

	s := &Shard{Registry: storage.NewRegistry(kcpcore.Locality), stores: map[schema.GroupResource]rest.Storage{}}
	var err error
	s.Authorizer, err = authorization.New(authorization.Config{Registry: s.Registry, AlwaysAllowPaths: []string{"/livez"}})
	must(t, err)

	rbac, err := kcprbac.NewStorage(options, s.Authorizer, s.Authorizer.RuleResolver())
	must(t, err)
	s.install(t, rbacv1.SchemeGroupVersion, rbac.VersionedResourcesStorageMap["v1"])
	kcp, err := kcpcore.Storages(options)
	must(t, err)
	s.install(t, corev1alpha1.SchemeGroupVersion, kcp)
	secrets, err := secretstorage.NewREST(options)
	must(t, err)
	accounts, err := accountstorage.NewREST(options, nil, nil, nil, time.Hour, nil, nil, nil, nil, nil, false, time.Hour)
	must(t, err)
	s.install(t, corev1.SchemeGroupVersion, map[string]rest.Storage{"secrets": secrets, "serviceaccounts": accounts})
	return s
}

func (s *Shard) install(t testing.TB, version schema.GroupVersion, storages map[string]rest.Storage) {
	for name, store := range storages {
		t.Cleanup(store.Destroy)
		resource := version.WithResource(name)
		s.stores[resource.GroupResource()] = store
		if readable, ok := store.(storage.Store); ok {
			s.Registry.Add(&storage.Resource{GVR: resource, Store: readable})
		}
	}
}

// CreateCluster creates a logical cluster in phase Ready.
func (s *Shard) CreateCluster(t testing.TB, name logicalcluster.Name, annotations map[string]string) {
	t.Helper()
	ctx := logicalcluster.With(t.Context(), name)
	cluster := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.LogicalClusterName, Annotations: annotations}}
	must(t, s.Create(ctx, Masters, cluster))
	s.SetPhase(t, name, corev1alpha1.LogicalClusterPhaseReady)
}

// SetPhase sets the phase of a logical cluster and waits until the watch cache has it.
func (s *Shard) SetPhase(t testing.TB, name logicalcluster.Name, phase corev1alpha1.LogicalClusterPhaseType) {
	t.Helper()
	ctx := request.WithNamespace(request.WithUser(logicalcluster.With(t.Context(), name), Masters), "")
	ctx = request.WithRequestInfo(ctx, &request.RequestInfo{APIGroup: corev1alpha1.GroupName, APIVersion: "v1alpha1", Resource: "logicalclusters", Subresource: "status"})
	status := s.stores[corev1alpha1.Resource("logicalclusters/status")].(rest.Updater)
	update := rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _, old runtime.Object) (runtime.Object, error) {
		cluster := old.DeepCopyObject().(*corev1alpha1.LogicalCluster)
		cluster.Status.Phase = phase
		return cluster, nil
	})
	_, _, err := status.Update(ctx, corev1alpha1.LogicalClusterName, update, rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	must(t, err)
	reader := storage.NewReader[*corev1alpha1.LogicalCluster](s.Registry, corev1alpha1.Resource("logicalclusters"))
	Eventually(t, func() bool {
		cluster, err := reader.Get(ctx, "", corev1alpha1.LogicalClusterName)
		return err == nil && cluster.Status.Phase == phase
	})
}

// Create creates an object of the internal type, as a user, in the logical cluster of the context. It returns when the
// watch cache has it.
func (s *Shard) Create(ctx context.Context, u user.Info, obj runtime.Object) error {
	kinds, _, err := legacyscheme.Scheme.ObjectKinds(obj)
	if err != nil {
		return err
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	resource, _ := meta.UnsafeGuessKindToResource(kinds[0])
	store := s.stores[resource.GroupResource()]
	ctx = request.WithNamespace(request.WithUser(ctx, u), accessor.GetNamespace())
	ctx = request.WithRequestInfo(ctx, &request.RequestInfo{
		IsResourceRequest: true, Verb: "create", APIGroup: resource.Group, APIVersion: versionOf(resource.Group).Version, Resource: resource.Resource, Namespace: accessor.GetNamespace(),
	})
	if _, err := store.(rest.Creater).Create(ctx, obj, rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); err != nil {
		return err
	}
	for ctx.Err() == nil {
		if _, err := store.(rest.Getter).Get(ctx, accessor.GetName(), &metav1.GetOptions{ResourceVersion: "0"}); err == nil {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return ctx.Err()
}

// Delete deletes an object with all permissions and waits until the watch cache has observed it.
func (s *Shard) Delete(t testing.TB, cluster logicalcluster.Name, resource schema.GroupResource, namespace, name string) {
	t.Helper()
	ctx := request.WithNamespace(request.WithUser(logicalcluster.With(t.Context(), cluster), Masters), namespace)
	store := s.stores[resource]
	_, _, err := store.(rest.GracefulDeleter).Delete(ctx, name, rest.ValidateAllObjectFunc, &metav1.DeleteOptions{})
	must(t, err)
	// The watch cache may not have observed the creation yet. A consistent list, once one succeeds, waits until it has.
	Eventually(t, func() bool {
		_, err := store.(rest.Lister).List(ctx, &internalversion.ListOptions{})
		return err == nil
	})
}

// Grant binds a user or group to a ClusterRole of the same name with the rules in a logical cluster.
func (s *Shard) Grant(t testing.TB, cluster logicalcluster.Name, name string, subject rbacapi.Subject, rules ...rbacapi.PolicyRule) {
	t.Helper()
	ctx := logicalcluster.With(t.Context(), cluster)
	must(t, s.Create(ctx, Masters, &rbacapi.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}))
	must(t, s.Create(ctx, Masters, NewClusterRoleBinding(name, name, subject)))
}

// NewClusterRoleBinding returns a ClusterRoleBinding to a ClusterRole.
func NewClusterRoleBinding(name, role string, subjects ...rbacapi.Subject) *rbacapi.ClusterRoleBinding {
	return &rbacapi.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacapi.RoleRef{APIGroup: rbacapi.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   subjects,
	}
}

// UserSubject returns the RBAC subject of a user.
func UserSubject(name string) rbacapi.Subject {
	return rbacapi.Subject{APIGroup: rbacapi.GroupName, Kind: rbacapi.UserKind, Name: name}
}

// GroupSubject returns the RBAC subject of a group.
func GroupSubject(name string) rbacapi.Subject {
	return rbacapi.Subject{APIGroup: rbacapi.GroupName, Kind: rbacapi.GroupKind, Name: name}
}

// Eventually polls until reached returns true.
func Eventually(t testing.TB, reached func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !reached(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not reached within 20 s")
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// restOptions stores every resource as a shard does.
type restOptions struct{ etcd *embeddedetcd.Server }

func (o restOptions) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	config := storagebackend.NewDefaultConfig("/registry", legacyscheme.Codecs.LegacyCodec(versionOf(resource.Group)))
	config.Transport.ServerList = []string{o.etcd.Endpoint}
	config.Transport.TrustedCAFile, config.Transport.CertFile, config.Transport.KeyFile = o.etcd.CAFile, o.etcd.CertFile, o.etcd.KeyFile
	return generic.RESTOptions{
		StorageConfig:  config.ForResource(resource),
		Decorator:      storage.WithCache(storage.CacheOptions{}),
		ResourcePrefix: resource.Group + "/" + resource.Resource,
	}, nil
}

func versionOf(group string) schema.GroupVersion {
	if group == corev1alpha1.SchemeGroupVersion.Group {
		return corev1alpha1.SchemeGroupVersion
	}
	return schema.GroupVersion{Group: group, Version: "v1"}
}
