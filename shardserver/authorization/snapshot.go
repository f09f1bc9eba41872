package authorization

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/kubernetes/pkg/apis/rbac"

	"github.com/atoll-dev/atoll/logicalcluster"
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

// snapshotCache keeps one snapshot while it is watched.
type snapshotCache struct {
	value atomic.Pointer[snapshot]

	mu         sync.Mutex
	watched    bool
	generation uint64 // of the watched state; a snapshot loaded in an older generation is not kept
}

// get returns the snapshot and loads it if needed, or returns nil while there is no watch.
func (k *snapshotCache) get(load func() (*snapshot, error)) (*snapshot, error) {
	if cached := k.value.Load(); cached != nil {
		return cached, nil
	}
	k.mu.Lock()
	watched, generation := k.watched, k.generation
	k.mu.Unlock()
	if !watched {
		return nil, nil
	}
	loaded, err := load()
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.watched && k.generation == generation {
		k.value.Store(loaded)
	}
	return loaded, nil
}

// invalidate invalidates the snapshot.
func (k *snapshotCache) invalidate(watched bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.generation++
	k.watched = watched
	k.value.Store(nil)
}

// Run watches the bootstrap policy until the context ends, so that requests need not read it each time. It is optional:
// decisions are the same without it.
func (a *Authorizer) Run(ctx context.Context) {
	for ctx.Err() == nil {
		_ = a.bootstrap.watchPolicy(ctx) // errors are retried: the APIs are not installed yet, or a watch cache restarted
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// HasSynced reports whether Run watches the policy.
func (a *Authorizer) HasSynced() bool {
	a.bootstrap.cache.mu.Lock()
	defer a.bootstrap.cache.mu.Unlock()
	return a.bootstrap.cache.watched
}

// watchPolicy invalidates the snapshot at every event, until one of the watches ends.
func (s *bootstrapSource) watchPolicy(ctx context.Context) error {
	ctx, cancel := context.WithCancel(logicalcluster.With(request.WithNamespace(ctx, ""), logicalcluster.Admin))
	defer cancel()
	var watches []watch.Interface
	defer func() {
		s.cache.invalidate(false)
		for _, w := range watches {
			w.Stop()
		}
	}()
	for _, name := range rbacResources {
		resource, err := s.registry.Get(rbac.Resource(name))
		if err != nil {
			return err
		}
		w, err := resource.Store.Watch(ctx, &internalversion.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return fmt.Errorf("watching %s of %s: %w", name, logicalcluster.Admin, err)
		}
		watches = append(watches, w)
	}
	s.cache.invalidate(true)
	done := make(chan struct{}, len(watches))
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel() // runs before the wait
	for _, w := range watches {
		wg.Go(func() {
			defer func() { done <- struct{}{} }()
			for {
				select {
				case _, ok := <-w.ResultChan():
					if !ok {
						return
					}
					s.cache.invalidate(true)
				case <-ctx.Done():
					return
				}
			}
		})
	}
	<-done
	return errors.New("a watch ended")
}
