package workspacetype

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/workspacepath"
)

// ErrUnresolvable is wrapped by errors about references, defaults and bases that lead to no type, as opposed to read
// errors. The user can correct them.
var ErrUnresolvable = errors.New("workspace type cannot be resolved")

// ErrNotAllowed is wrapped by errors about a type that is not allowed below another.
var ErrNotAllowed = errors.New("workspace type is not allowed here")

// Resolved is a workspace type with its location.
type Resolved struct {
	*tenancyv1alpha1.WorkspaceType
	// Cluster contains the type.
	Cluster logicalcluster.Name
	// Reference references the type: its path is the canonical one of Cluster.
	Reference Reference
}

// key identifies a type, independent of the path.
type key struct {
	cluster logicalcluster.Name
	name    string
}

func (r Resolved) key() key { return key{r.Cluster, r.Name} }

// Resolve returns the type of a new workspace in the parent cluster for a reference: the parent's default without a
// name; the nearest one from the parent upwards without a path; else exactly the referenced type.
func (r *Resolver) Resolve(ctx context.Context, parent logicalcluster.Name, ref Reference) (Resolved, error) {
	if ref.Name == "" {
		var err error
		if ref, err = r.defaultChild(ctx, parent); err != nil {
			return Resolved{}, err
		}
	}
	if ref.Path.Empty() {
		return r.search(ctx, parent, ref.Name)
	}
	return r.Get(ctx, ref)
}

// Get returns the type of a reference with a path. The path must be the canonical one or the cluster name; other paths
// to the same cluster are not accepted.
func (r *Resolver) Get(ctx context.Context, ref Reference) (Resolved, error) {
	cluster, err := r.Locate(ctx, ref.Path)
	if errors.Is(err, workspacepath.ErrRemote) {
		return r.getByPathLatest(ctx, ref)
	}
	if err != nil {
		return Resolved{}, wrapUnresolvable(err, "workspace type %q not found", ref)
	}
	found, err := r.reader.WorkspaceType(ctx, cluster, ref.Name)
	if err != nil {
		return Resolved{}, wrapUnresolvable(err, "workspace type %q not found", ref)
	}
	if ref.Path == cluster.Path() {
		return r.withCanonicalPath(ctx, found, cluster), nil
	}
	if canonicalPath(found, cluster) != ref.Path {
		return Resolved{}, fmt.Errorf("%w: workspace type %q not found", ErrUnresolvable, ref)
	}
	return Resolved{WorkspaceType: found, Cluster: cluster, Reference: ref}, nil
}

// getByPath returns the type that is annotated with a path which cannot be resolved on this shard. Admission sets the
// annotation.
func (r *Resolver) getByPath(ctx context.Context, ref Reference) (Resolved, error) {
	return r.getFromClusters(ctx, ref, r.reader.ListByPath(ref))
}

// getByPathLatest is getByPath with a consistent read of the types of this shard.
func (r *Resolver) getByPathLatest(ctx context.Context, ref Reference) (Resolved, error) {
	found, err := r.getByPath(ctx, ref)
	if !errors.Is(err, ErrUnresolvable) {
		return found, err
	}
	latest, err := r.reader.ListByPathLatest(ctx, ref)
	if err != nil {
		return Resolved{}, err
	}
	return r.getFromClusters(ctx, ref, latest)
}

func (r *Resolver) getFromClusters(ctx context.Context, ref Reference, clusters []logicalcluster.Name) (Resolved, error) {
	for _, cluster := range clusters {
		found, err := r.reader.WorkspaceType(ctx, cluster, ref.Name)
		if apierrors.IsNotFound(err) {
			continue // it was deleted, and the index has not observed that yet
		}
		if err != nil {
			return Resolved{}, fmt.Errorf("reading workspace type %q in %q: %w", ref.Name, cluster, err)
		}
		if canonicalPath(found, cluster) == ref.Path {
			return Resolved{WorkspaceType: found, Cluster: cluster, Reference: ref}, nil
		}
	}
	if err := r.reader.CheckSynced(); err != nil {
		return Resolved{}, fmt.Errorf("finding workspace type %q: %w", ref, err)
	}
	return Resolved{}, fmt.Errorf("%w: workspace type %q not found", ErrUnresolvable, ref)
}

// withCanonicalPath completes a type that was found by its cluster. Its path annotation is used only if the path leads
// to the cluster, or cannot be resolved on this shard.
func (r *Resolver) withCanonicalPath(ctx context.Context, found *tenancyv1alpha1.WorkspaceType, cluster logicalcluster.Name) Resolved {
	path := canonicalPath(found, cluster)
	if resolved, err := r.Locate(ctx, path); !errors.Is(err, workspacepath.ErrRemote) && (err != nil || resolved != cluster) {
		path = cluster.Path()
	}
	return Resolved{WorkspaceType: found, Cluster: cluster, Reference: Reference{Path: path, Name: found.Name}}
}

// GetByCluster returns the type that a logical cluster was created with.
func (r *Resolver) GetByCluster(ctx context.Context, cluster logicalcluster.Name) (Resolved, error) {
	logicalCluster, err := r.reader.LogicalCluster(ctx, cluster)
	if err != nil {
		return Resolved{}, wrapUnresolvable(err, "logical cluster %q not found", cluster)
	}
	text, ok := logicalCluster.Annotations[corev1alpha1.LogicalClusterTypeAnnotationKey]
	if !ok {
		return Resolved{}, fmt.Errorf("%w: logical cluster %q has no annotation %s", ErrUnresolvable, cluster, corev1alpha1.LogicalClusterTypeAnnotationKey)
	}
	ref, err := ParseReference(text)
	if err != nil {
		return Resolved{}, fmt.Errorf("%w: annotation %s of logical cluster %q: %w", ErrUnresolvable, corev1alpha1.LogicalClusterTypeAnnotationKey, cluster, err)
	}
	return r.Get(ctx, ref)
}

func (r *Resolver) defaultChild(ctx context.Context, parent logicalcluster.Name) (Reference, error) {
	parentType, err := r.GetByCluster(ctx, parent)
	if err != nil {
		return Reference{}, fmt.Errorf("finding the default type of new workspaces: %w", err)
	}
	child := parentType.Spec.DefaultChildWorkspaceType
	if child == nil || child.Name == "" {
		return Reference{}, fmt.Errorf("%w: spec.defaultChildWorkspaceType of workspace type %q is not set, so a type must be given", ErrUnresolvable, parentType.Reference)
	}
	return toReference(*child)
}

// search looks up a type by name in the parent, in each of its ancestors, and finally in root.
func (r *Resolver) search(ctx context.Context, parent logicalcluster.Name, name string) (Resolved, error) {
	logicalCluster, err := r.reader.LogicalCluster(ctx, parent)
	if err != nil {
		return Resolved{}, wrapUnresolvable(err, "logical cluster %q not found", parent)
	}
	from := canonicalPath(logicalCluster, parent)
	reach, remote, err := r.resolvableSegments(ctx, from)
	if err != nil {
		return Resolved{}, err
	}
	root := logicalcluster.Root.Path()
	for _, path := range append([]logicalcluster.Path{parent.Path()}, ancestorPaths(from)...) {
		if path != parent.Path() && path != root && len(path.Segments()) > reach {
			if !remote {
				continue
			}
			found, err := r.getByPath(ctx, Reference{Path: path, Name: name})
			if err == nil || !errors.Is(err, ErrUnresolvable) {
				return found, err
			}
			continue
		}
		found, err := r.Get(ctx, Reference{Path: path, Name: name})
		if err == nil || !errors.Is(err, ErrUnresolvable) {
			return found, err
		}
	}
	return Resolved{}, fmt.Errorf("%w: workspace type %q not found in %q, nor above it, nor in %q", ErrUnresolvable, name, from, logicalcluster.Root)
}

// resolvableSegments returns how many segments of a path exist, and whether the rest is on other shards. Each lookup of
// a missing object reads storage, so the search must not look up each segment of a path that does not exist.
func (r *Resolver) resolvableSegments(ctx context.Context, path logicalcluster.Path) (reached int, remote bool, err error) {
	_, rest, err := workspacepath.Split(path)
	if err != nil {
		return 0, false, nil // the first segment does not exist
	}
	reached = len(path.Segments()) - len(rest)
	_, err = r.walk(ctx, path, func(*tenancyv1alpha1.Workspace) error {
		reached++
		return nil
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return 0, false, err
	}
	return reached, errors.Is(err, workspacepath.ErrRemote), nil
}

// ancestorPaths returns the path and its ancestors, the nearest first, and root at the end.
func ancestorPaths(path logicalcluster.Path) []logicalcluster.Path {
	var ancestors []logicalcluster.Path
	for path, ok := path.Parent(); ok && !workspacepath.IsHome(path); path, ok = path.Parent() {
		ancestors = append(ancestors, path)
	}
	root := logicalcluster.Root.Path()
	if len(ancestors) == 0 || ancestors[len(ancestors)-1] != root {
		ancestors = append(ancestors, root)
	}
	return ancestors
}

func toReference(ref tenancyv1alpha1.WorkspaceTypeReference) (Reference, error) {
	parsed, err := NewReference(ref.Path, string(ref.Name))
	if err != nil {
		return Reference{}, fmt.Errorf("%w: %w", ErrUnresolvable, err)
	}
	return parsed, nil
}

// wrapUnresolvable wraps ErrUnresolvable for objects that do not exist, and returns other errors as read errors.
// Registries return BadRequest for an invalid name ("a/b", which the pattern of type names permits).
func wrapUnresolvable(err error, format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	if apierrors.IsNotFound(err) || apierrors.IsBadRequest(err) {
		return fmt.Errorf("%w: %s", ErrUnresolvable, what)
	}
	return fmt.Errorf("%s: %w", what, err)
}
