package workspacetype

import (
	"context"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// fakeReader is a reader of objects in maps.
type fakeReader struct {
	clusters   map[string]*corev1alpha1.LogicalCluster
	workspaces map[string]*tenancyv1alpha1.Workspace
	types      map[string]*tenancyv1alpha1.WorkspaceType
	// remote are the clusters of other shards: the other maps have their published objects, without workspaces.
	remote map[string]bool
	// notSynced is the reason why other shards may have more objects than the maps.
	notSynced error
}

func newFakeReader() *fakeReader {
	return &fakeReader{
		clusters:   map[string]*corev1alpha1.LogicalCluster{},
		workspaces: map[string]*tenancyv1alpha1.Workspace{},
		types:      map[string]*tenancyv1alpha1.WorkspaceType{},
	}
}

// cluster adds a logical cluster with its canonical path and the reference of its type, and the workspace that
// has it.
func (f *fakeReader) cluster(name, path, typeRef string) *fakeReader {
	logicalCluster := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster", Annotations: map[string]string{}}}
	if path != "" {
		logicalCluster.Annotations[logicalcluster.PathAnnotationKey] = path
	}
	if typeRef != "" {
		logicalCluster.Annotations[corev1alpha1.LogicalClusterTypeAnnotationKey] = typeRef
	}
	f.clusters[name] = logicalCluster
	if colon := strings.LastIndex(path, ":"); colon > 0 {
		for parent, object := range f.clusters {
			if object.Annotations[logicalcluster.PathAnnotationKey] == path[:colon] {
				f.workspace(parent, path[colon+1:], name, corev1alpha1.LogicalClusterPhaseReady)
			}
		}
	}
	return f
}

func (f *fakeReader) workspace(parent, name, cluster string, phase corev1alpha1.LogicalClusterPhaseType) *fakeReader {
	workspace := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	workspace.Spec.Cluster = cluster
	workspace.Status.Phase = phase
	f.workspaces[parent+"/"+name] = workspace
	return f
}

// add adds a type to a cluster, annotated as admission does.
func (f *fakeReader) add(cluster, name string, set ...func(*tenancyv1alpha1.WorkspaceType)) *fakeReader {
	workspaceType := &tenancyv1alpha1.WorkspaceType{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
		logicalcluster.AnnotationKey: cluster,
	}}}
	if object, ok := f.clusters[cluster]; ok {
		if path, ok := object.Annotations[logicalcluster.PathAnnotationKey]; ok {
			workspaceType.Annotations[logicalcluster.PathAnnotationKey] = path
		}
	}
	for _, set := range set {
		set(workspaceType)
	}
	f.types[cluster+"/"+name] = workspaceType
	return f
}

func (f *fakeReader) LogicalCluster(_ context.Context, cluster logicalcluster.Name) (*corev1alpha1.LogicalCluster, error) {
	return getObject(f.clusters, corev1alpha1.Resource("logicalclusters").Resource, cluster.String())
}

func (f *fakeReader) Workspace(_ context.Context, parent logicalcluster.Name, name string) (*tenancyv1alpha1.Workspace, error) {
	return getObject(f.workspaces, "workspaces", parent.String()+"/"+name)
}

func (f *fakeReader) WorkspaceType(_ context.Context, cluster logicalcluster.Name, name string) (*tenancyv1alpha1.WorkspaceType, error) {
	return getObject(f.types, "workspacetypes", cluster.String()+"/"+name)
}

// setRemote makes a cluster one of another shard: its workspaces are removed.
func (f *fakeReader) setRemote(cluster string) *fakeReader {
	if f.remote == nil {
		f.remote = map[string]bool{}
	}
	f.remote[cluster] = true
	for name := range f.workspaces {
		if strings.HasPrefix(name, cluster+"/") {
			delete(f.workspaces, name)
		}
	}
	return f
}

func (f *fakeReader) ListByPath(reference Reference) []logicalcluster.Name {
	var found []logicalcluster.Name
	for _, object := range f.types {
		cluster := logicalcluster.Of(object)
		if object.Name == reference.Name && canonicalPath(object, cluster) == reference.Path {
			found = append(found, cluster)
		}
	}
	return found
}

func (f *fakeReader) ListByPathLatest(context.Context, Reference) ([]logicalcluster.Name, error) {
	return nil, nil
}

func (f *fakeReader) IsLocal(_ context.Context, cluster logicalcluster.Name) (bool, error) {
	return !f.remote[cluster.String()], nil
}

func (f *fakeReader) CheckSynced() error { return f.notSynced }

func getObject[T any](objects map[string]T, resource, name string) (T, error) {
	object, ok := objects[name]
	if !ok {
		return object, apierrors.NewNotFound(tenancyv1alpha1.Resource(resource), name)
	}
	return object, nil
}

func extends(refs ...string) func(*tenancyv1alpha1.WorkspaceType) {
	return func(t *tenancyv1alpha1.WorkspaceType) { t.Spec.Extend.With = references(refs) }
}

func limitParents(refs ...string) func(*tenancyv1alpha1.WorkspaceType) {
	return func(t *tenancyv1alpha1.WorkspaceType) { t.Spec.LimitAllowedParents = selector(refs) }
}

func limitChildren(refs ...string) func(*tenancyv1alpha1.WorkspaceType) {
	return func(t *tenancyv1alpha1.WorkspaceType) { t.Spec.LimitAllowedChildren = selector(refs) }
}

func defaultChild(ref string) func(*tenancyv1alpha1.WorkspaceType) {
	return func(t *tenancyv1alpha1.WorkspaceType) {
		t.Spec.DefaultChildWorkspaceType = &references([]string{ref})[0]
	}
}

func initializer(t *tenancyv1alpha1.WorkspaceType) { t.Spec.Initializer = true }
func terminator(t *tenancyv1alpha1.WorkspaceType)  { t.Spec.Terminator = true }

func binds(export string) func(*tenancyv1alpha1.WorkspaceType) {
	return func(t *tenancyv1alpha1.WorkspaceType) {
		t.Spec.DefaultAPIBindings = append(t.Spec.DefaultAPIBindings, tenancyv1alpha1.APIExportReference{Export: export})
	}
}

func selector(refs []string) *tenancyv1alpha1.WorkspaceTypeSelector {
	if len(refs) == 0 {
		return &tenancyv1alpha1.WorkspaceTypeSelector{None: ptr.To(true)}
	}
	return &tenancyv1alpha1.WorkspaceTypeSelector{Types: references(refs)}
}

func references(texts []string) []tenancyv1alpha1.WorkspaceTypeReference {
	refs := make([]tenancyv1alpha1.WorkspaceTypeReference, 0, len(texts))
	for _, text := range texts {
		path, name := "", text
		if colon := strings.LastIndex(text, ":"); colon >= 0 {
			path, name = text[:colon], text[colon+1:]
		}
		refs = append(refs, tenancyv1alpha1.WorkspaceTypeReference{Path: path, Name: tenancyv1alpha1.WorkspaceTypeName(name)})
	}
	return refs
}
