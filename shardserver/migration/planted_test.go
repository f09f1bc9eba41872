package migration

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/sharding/placement"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// replicas are the migrations that the root shard publishes.
type replicas struct {
	storage.RemoteStore
	migrations map[string]*migrationv1alpha1.LogicalClusterMigration
}

func (r replicas) Get(resource schema.GroupResource, _ logicalcluster.Name, _, name string) (runtime.Object, bool) {
	found, ok := r.migrations[name]
	return found, ok && resource == migrations
}

func (r replicas) List(schema.GroupResource, logicalcluster.Name) (all []runtime.Object) {
	for _, one := range r.migrations {
		all = append(all, one)
	}
	return all
}

func (r replicas) CheckSynced(schema.GroupResource) error { return nil }

// TestOwnMigrationsDoNotCount: a shard that does not store migrations reads none in its own etcd, where an origin may have planted one.
func TestOwnMigrationsDoNotCount(t *testing.T) {
	registry := storage.NewRegistry(storage.Locality{}) // to read a stored one fails
	registry.SetRemoteStore(replicas{migrations: map[string]*migrationv1alpha1.LogicalClusterMigration{"published": {ObjectMeta: metav1.ObjectMeta{Name: "published"}}}})
	r := newReader(registry, false)
	for name, want := range map[string]bool{"published": true, "planted": false} {
		got, err := r.migration(t.Context(), controller.Request{ClusterName: logicalcluster.MustParseName("here"), Name: name})
		if err != nil || (got != nil) != want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if all, err := r.allMigrations(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("all: %v, %v", all, err)
	}
}

// objects is a store of objects by logical cluster.
type objects struct {
	genericregistry.Store
	list func(logicalcluster.Name) runtime.Object
	get  func(logicalcluster.Name) runtime.Object
}

func (o *objects) List(ctx context.Context, _ *internalversion.ListOptions) (runtime.Object, error) {
	cluster, _ := logicalcluster.From(ctx)
	return o.list(cluster), nil
}

func (o *objects) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	cluster, _ := logicalcluster.From(ctx)
	if found := o.get(cluster); found != nil {
		return found, nil
	}
	return nil, apierrors.NewNotFound(logicalClusters, name)
}

// TestPlantedWorkspaces: Workspaces that an origin has planted lead the destination neither in circles nor into the logical clusters of
// others.
func TestPlantedWorkspaces(t *testing.T) {
	workspace := func(name, cluster, shard string) tenancyv1alpha1.Workspace {
		return tenancyv1alpha1.Workspace{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Annotations: map[string]string{corev1alpha1.ShardAnnotationKey: shard}},
			Spec:       tenancyv1alpha1.WorkspaceSpec{Cluster: cluster},
		}
	}
	all := map[string][]tenancyv1alpha1.Workspace{
		"circle": {workspace("self", "circle", "beta"), workspace("there", "back", "beta")}, "back": {workspace("back", "circle", "beta")},
		"thief": {workspace("stolen", "victim", "beta"), workspace("top", "root", "alpha")}, "victim": {workspace("secret", "elsewhere", "alpha")},
		"parent": {workspace("child", "mine", "beta")}, "mine": {workspace("grandchild", "elsewhere", "alpha")},
	}
	owners := map[string]struct{ cluster, workspace string }{
		"back": {"circle", "there"}, "circle": {"back", "back"}, "victim": {"tenant", "secret"}, "mine": {"parent", "child"},
	}
	registry := storage.NewRegistry(storage.Locality{})
	registry.Add(&storage.Resource{GVR: workspaces.WithVersion("v1alpha1"), Prefix: "/w", Store: &objects{list: func(in logicalcluster.Name) runtime.Object {
		return &tenancyv1alpha1.WorkspaceList{Items: all[in.String()]}
	}}})
	registry.Add(&storage.Resource{GVR: logicalClusters.WithVersion("v1alpha1"), Prefix: "/c", Store: &objects{get: func(in logicalcluster.Name) runtime.Object {
		owner, exists := owners[in.String()]
		if !exists {
			return nil
		}
		for i := range all[owner.cluster] {
			if found := &all[owner.cluster][i]; found.Name == owner.workspace {
				reference := placement.Owner(logicalcluster.MustParseName(owner.cluster), found)
				return &corev1alpha1.LogicalCluster{Spec: corev1alpha1.LogicalClusterSpec{Owner: &reference}}
			}
		}
		return &corev1alpha1.LogicalCluster{Spec: corev1alpha1.LogicalClusterSpec{Owner: &corev1alpha1.LogicalClusterOwner{Cluster: owner.cluster}}}
	}}})
	service := &childrenService{cfg: Config{Shard: "beta"}, reader: newReader(registry, false)}
	for in, want := range map[string]string{"circle": "", "thief": "", "parent": "elsewhere"} {
		top := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{logicalcluster.AnnotationKey: in}}}
		if got, err := service.next(t.Context(), top); err != nil || got.Next != want {
			t.Errorf("%s: %+v, %v", in, got, err)
		}
	}
}
