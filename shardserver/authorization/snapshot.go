package authorization

import (
	"context"
	"sync"
	"sync/atomic"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/kubernetes/pkg/apis/rbac"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/informer"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// bootstrapSource reads the RBAC objects of system:admin, regardless of the logical cluster of the context. Every
// request evaluates it twice, so it keeps one converted copy per process, which watch events invalidate; without a
// running watch it reads the watch cache each time.
type bootstrapSource struct {
	registry *storage.Registry
	direct   *reader
	cache    snapshotCache
}

func newBootstrapSource(registry *storage.Registry) *bootstrapSource {
	return &bootstrapSource{registry: registry, direct: newReader(registry)}
}

func (s *bootstrapSource) current(ctx context.Context) (source, context.Context) {
	ctx = logicalcluster.With(ctx, logicalcluster.Admin)
	cached, err := s.cache.get(func() (*snapshot, error) { return loadSnapshot(ctx, s.direct) })
	if err != nil || cached == nil {
		return s.direct, ctx // reading again returns the error, if it persists
	}
	return cached, ctx
}

func (s *bootstrapSource) GetRole(ctx context.Context, namespace, name string) (*rbacv1.Role, error) {
	from, ctx := s.current(ctx)
	return from.GetRole(ctx, namespace, name)
}

func (s *bootstrapSource) ListRoleBindings(ctx context.Context, namespace string) ([]*rbacv1.RoleBinding, error) {
	from, ctx := s.current(ctx)
	return from.ListRoleBindings(ctx, namespace)
}

func (s *bootstrapSource) GetClusterRole(ctx context.Context, name string) (*rbacv1.ClusterRole, error) {
	from, ctx := s.current(ctx)
	return from.GetClusterRole(ctx, name)
}

func (s *bootstrapSource) ListClusterRoleBindings(ctx context.Context) ([]*rbacv1.ClusterRoleBinding, error) {
	from, ctx := s.current(ctx)
	return from.ListClusterRoleBindings(ctx)
}

// snapshot is all RBAC of one logical cluster at one moment. It is immutable.
type snapshot struct {
	roles               map[string]map[string]*rbacv1.Role // by namespace and name
	roleBindings        map[string][]*rbacv1.RoleBinding   // by namespace
	clusterRoles        map[string]*rbacv1.ClusterRole
	clusterRoleBindings []*rbacv1.ClusterRoleBinding
}

func loadSnapshot(ctx context.Context, from *reader) (*snapshot, error) {
	s := &snapshot{roles: map[string]map[string]*rbacv1.Role{}, roleBindings: map[string][]*rbacv1.RoleBinding{}, clusterRoles: map[string]*rbacv1.ClusterRole{}}
	roles, err := from.listRoles(ctx, "")
	if err != nil {
		return nil, err
	}
	for _, role := range roles {
		if s.roles[role.Namespace] == nil {
			s.roles[role.Namespace] = map[string]*rbacv1.Role{}
		}
		s.roles[role.Namespace][role.Name] = role
	}
	roleBindings, err := from.ListRoleBindings(ctx, "")
	if err != nil {
		return nil, err
	}
	for _, binding := range roleBindings {
		s.roleBindings[binding.Namespace] = append(s.roleBindings[binding.Namespace], binding)
	}
	clusterRoles, err := from.listClusterRoles(ctx)
	if err != nil {
		return nil, err
	}
	for _, role := range clusterRoles {
		s.clusterRoles[role.Name] = role
	}
	s.clusterRoleBindings, err = from.ListClusterRoleBindings(ctx)
	return s, err
}

func (s *snapshot) GetRole(_ context.Context, namespace, name string) (*rbacv1.Role, error) {
	if role, ok := s.roles[namespace][name]; ok {
		return role, nil
	}
	return nil, apierrors.NewNotFound(rbacv1.Resource("roles"), name)
}

func (s *snapshot) ListRoleBindings(_ context.Context, namespace string) ([]*rbacv1.RoleBinding, error) {
	return s.roleBindings[namespace], nil
}

func (s *snapshot) GetClusterRole(_ context.Context, name string) (*rbacv1.ClusterRole, error) {
	if role, ok := s.clusterRoles[name]; ok {
		return role, nil
	}
	return nil, apierrors.NewNotFound(rbacv1.Resource("clusterroles"), name)
}

func (s *snapshot) ListClusterRoleBindings(context.Context) ([]*rbacv1.ClusterRoleBinding, error) {
	return s.clusterRoleBindings, nil
}

// snapshotCache keeps one snapshot while all RBAC resources are watched.
type snapshotCache struct {
	value atomic.Pointer[snapshot]

	mu         sync.Mutex
	watches    int    // number of resources that are watched
	generation uint64 // number of events; a snapshot loaded in an older generation is not kept
}

// get returns the snapshot and loads it if needed, or returns nil while not everything is watched.
func (s *snapshotCache) get(load func() (*snapshot, error)) (*snapshot, error) {
	if cached := s.value.Load(); cached != nil {
		return cached, nil
	}
	generation, synced := s.state()
	if !synced {
		return nil, nil
	}
	loaded, err := load()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.generation == generation {
		s.value.Store(loaded)
	}
	return loaded, nil
}

func (s *snapshotCache) state() (generation uint64, synced bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.generation, s.watches == len(rbacResources)
}

// invalidate drops the snapshot and changes the number of watches.
func (s *snapshotCache) invalidate(watches int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.generation++
	s.watches += watches
	s.value.Store(nil)
}

// Run watches the bootstrap policy until the context ends, so that requests need not read it each time. It is optional:
// decisions are the same without it.
func (a *Authorizer) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	for _, resource := range rbacResources {
		running.Go(func() { a.bootstrap.newInformer(rbac.Resource(resource)).Run(ctx) })
	}
}

// HasSynced reports whether Run watches the policy.
func (a *Authorizer) HasSynced() bool {
	_, synced := a.bootstrap.cache.state()
	return synced
}

// newInformer returns an informer of a resource in system:admin that invalidates the snapshot at every event.
func (s *bootstrapSource) newInformer(gr schema.GroupResource) *informer.Informer[runtime.Object] {
	invalidate := func(context.Context, runtime.Object) error { s.cache.invalidate(0); return nil }
	watchAdmin := func(ctx context.Context) (watch.Interface, error) { return s.watch(ctx, gr) }
	return informer.NewWithHandler(gr, watchAdmin, informer.EventHandler[runtime.Object]{
		OnReplace:    func(context.Context, []runtime.Object, string) error { s.cache.invalidate(1); return nil },
		OnAdd:        invalidate,
		OnUpdate:     invalidate,
		OnDelete:     invalidate,
		OnDisconnect: func() { s.cache.invalidate(-1) },
	})
}

// watch starts a watch whose initial events are the state of the watch cache, so that it delivers every change that a
// snapshot from the same cache does not contain. After a list it would start at a version that the cache may not have
// reached.
func (s *bootstrapSource) watch(ctx context.Context, gr schema.GroupResource) (watch.Interface, error) {
	resource, err := s.registry.Get(gr)
	if err != nil {
		return nil, err
	}
	return resource.Store.Watch(logicalcluster.With(request.WithNamespace(ctx, ""), logicalcluster.Admin), &internalversion.ListOptions{
		SendInitialEvents: new(true), ResourceVersion: "0", ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true,
	})
}
