package move

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/dynamic"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	"github.com/atoll-dev/atoll/internal/drain"
	"github.com/atoll-dev/atoll/internal/moves"
	"github.com/atoll-dev/atoll/internal/rebalance"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/plugin/connection"
	"github.com/atoll-dev/atoll/plugin/workspace"
)

// migrations are in the root workspace: every shard and every region knows those.
var (
	migrations      = migrationv1alpha1.SchemeGroupVersion.WithResource("logicalclustermigrations")
	logicalClusters = corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters")
)

// maxName bounds the part of the name of a migration that is generated from that of the workspace.
const maxName = 40

// mover moves one workspace.
type mover struct {
	genericiooptions.IOStreams
	options
	client  dynamic.ResourceInterface
	get     getFunc
	path    logicalcluster.Path
	cluster string
}

// getFunc reads a LogicalCluster by its name.
type getFunc func(ctx context.Context, cluster string) (*unstructured.Unstructured, error)

// shard returns the name of the shard that has the workspace, or "" if it does not exist.
func (m *mover) shard(ctx context.Context) (string, error) { return shardOf(ctx, m.get, m.cluster) }

// open finds the logical cluster of a workspace.
func open(ctx context.Context, flags *connection.Flags, o options) (*mover, error) {
	session, err := flags.Open()
	if err != nil {
		return nil, err
	}
	installation, path, err := workspace.Resolve(ctx, session, o.workspace)
	if err != nil {
		return nil, err
	}
	client, err := installation.Resource(logicalcluster.Root.Path(), migrations)
	if err != nil {
		return nil, err
	}
	m := &mover{IOStreams: flags.IOStreams, options: o, client: client, path: path}
	m.get = func(ctx context.Context, cluster string) (*unstructured.Unstructured, error) {
		name, err := logicalcluster.ParseName(cluster)
		if err != nil {
			return nil, err
		}
		return installation.Get(ctx, name.Path(), logicalClusters, corev1alpha1.LogicalClusterName)
	}
	m.cluster, err = clusterOf(ctx, installation, path)
	return m, err
}

// clusterOf returns the name of the logical cluster of a workspace.
func clusterOf(ctx context.Context, installation *connection.Installation, path logicalcluster.Path) (string, error) {
	parent, ok := connection.ParentOf(path)
	if !ok {
		if path == logicalcluster.Root.Path() {
			return "", errors.New("the root workspace belongs to the root shard, and cannot be moved")
		}
		return path.Base(), nil // the name of a logical cluster
	}
	object, err := installation.Get(ctx, parent, connection.Workspaces, path.Base())
	switch {
	case apierrors.IsNotFound(err):
		return "", fmt.Errorf("workspace %q not found", path)
	case err != nil:
		return "", err
	}
	if _, mount, _ := unstructured.NestedMap(object.Object, "spec", "mount"); mount {
		return "", fmt.Errorf("workspace %q is a mount: its content is not on a shard", path)
	}
	cluster, _, _ := unstructured.NestedString(object.Object, "spec", "cluster")
	if cluster == "" {
		return "", fmt.Errorf("workspace %q has no logical cluster yet: wait until it is Ready", path)
	}
	return cluster, nil
}

// move creates the migration, or finds the one that is in progress, and follows it.
func (m *mover) move(ctx context.Context) error {
	running, err := m.running(ctx)
	if err != nil {
		return err
	}
	switch {
	case running == nil:
		if running, err = m.create(ctx); err != nil {
			return err
		}
		fmt.Fprintf(m.Out, "Moving workspace %q to shard %q: LogicalClusterMigration %q in root created.\n", m.path, m.to, running.Name)
	case running.Spec.DestinationShard != m.to:
		return fmt.Errorf("workspace %q is being moved to shard %q: wait, or give up with: kubectl kcp move :%s --abort", m.path, running.Spec.DestinationShard, m.path)
	case m.includeChildren && running.Annotations[migrationv1alpha1.IncludeChildrenAnnotationKey] != "true":
		return fmt.Errorf("workspace %q is being moved without its children: repeat the command when that has ended", m.path)
	default:
		fmt.Fprintf(m.Out, "Workspace %q is being moved to shard %q already, by LogicalClusterMigration %q in root.\n", m.path, m.to, running.Name)
	}
	if !m.wait {
		return nil
	}
	return m.follow(ctx, running)
}

// running returns the migration of the logical cluster that has not ended; nil if there is none. Of several, it is the one
// that was created first: the others are about to fail. Those that move it as a child of another one belong to that.
func (m *mover) running(ctx context.Context) (*migrationv1alpha1.LogicalClusterMigration, error) {
	var all []*migrationv1alpha1.LogicalClusterMigration
	err := moves.ForEach(ctx, m.client, metav1.ListOptions{}, func(object *unstructured.Unstructured) error {
		one, err := moves.Decode(object)
		if err == nil && one.Spec.LogicalCluster == m.cluster && moves.IsRunning(one) {
			all = append(all, one)
		}
		return err
	})
	if err != nil {
		return nil, explain(err, "listing")
	}
	if len(all) == 0 {
		return nil, nil
	}
	return slices.MinFunc(all, func(a, b *migrationv1alpha1.LogicalClusterMigration) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	}), nil
}

func (m *mover) create(ctx context.Context) (*migrationv1alpha1.LogicalClusterMigration, error) {
	name := m.path.Base()
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": migrations.GroupVersion().String(),
		"kind":       "LogicalClusterMigration",
		"metadata":   map[string]any{"generateName": name[:min(len(name), maxName)] + "-"},
		"spec":       map[string]any{"logicalCluster": m.cluster, "destinationShard": m.to},
	}}
	if m.includeChildren {
		object.SetAnnotations(map[string]string{migrationv1alpha1.IncludeChildrenAnnotationKey: "true"})
	}
	created, err := m.client.Create(ctx, object, metav1.CreateOptions{})
	if err != nil {
		return nil, explain(err, "creating")
	}
	return moves.Decode(created)
}

// abort deletes the migration in progress, and follows until it has ended.
func (m *mover) abort(ctx context.Context) error {
	running, err := m.running(ctx)
	if err != nil {
		return err
	}
	if running == nil {
		return fmt.Errorf("workspace %q is not being moved by a LogicalClusterMigration in root", m.path)
	}
	if shard := running.Labels[drain.Label]; shard != "" && running.DeletionTimestamp == nil {
		return fmt.Errorf("the drain of shard %q moves workspace %q, and would begin again: end it with \"kubectl kcp drain %s --stop\", or set spec.drain of its Shard to false", shard, m.path, shard)
	}
	if running.Labels[rebalance.Label] != "" && running.DeletionTimestamp == nil {
		return fmt.Errorf("the operator moves workspace %q to even out the shards, and would begin again: set spec.rebalance.mode of the RootShard to Off", m.path)
	}
	if owner := metav1.GetControllerOf(running); owner != nil {
		fmt.Fprintf(m.Out, "Workspace %q moves with the one above: LogicalClusterMigration %q stops, too.\n", m.path, owner.Name)
	}
	if running.DeletionTimestamp == nil {
		if err := m.client.Delete(ctx, running.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(running.UID))}); err != nil && !apierrors.IsNotFound(err) {
			return explain(err, "deleting")
		}
	}
	fmt.Fprintf(m.Out, "LogicalClusterMigration %q is being deleted.\n", running.Name)
	if !m.wait {
		return nil
	}
	return m.follow(ctx, running)
}

// explain adds what a user can do about an error of the API.
func explain(err error, doing string) error {
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%s LogicalClusterMigrations: the root workspace does not serve migration.kcp.io", doing)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%s a LogicalClusterMigration in root needs a member of the group system:kcp:admin, and shards with the feature gate LogicalClusterMigration enabled: %w", doing, err)
	}
	return fmt.Errorf("%s a LogicalClusterMigration in root: %w", doing, err)
}
