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
func (t *fakeReader) cluster(name, path, typeRef string) *fakeReader {
	logicalCluster := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster", Annotations: map[string]string{}}}
	if path != "" {
		logicalCluster.Annotations[logicalcluster.PathAnnotationKey] = path
	}
	if typeRef != "" {
		logicalCluster.Annotations[corev1alpha1.LogicalClusterTypeAnnotationKey] = typeRef
	}
	t.clusters[name] = logicalCluster
	if colon := strings.LastIndex(path, ":"); colon > 0 {
		for parent, object := range t.clusters {
			if object.Annotations[logicalcluster.PathAnnotationKey] == path[:colon] {
				t.workspace(parent, path[colon+1:], name, corev1alpha1.LogicalClusterPhaseReady)
			}
		}
	}
	return t
}

func (t *fakeReader) workspace(parent, name, cluster string, phase corev1alpha1.LogicalClusterPhaseType) *fakeReader {
	workspace := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	workspace.Spec.Cluster = cluster
	workspace.Status.Phase = phase
	t.workspaces[parent+"/"+name] = workspace
	return t
}

// add adds a type to a cluster, annotated as admission does.
func (t *fakeReader) add(cluster, name string, set ...func(*tenancyv1alpha1.WorkspaceType)) *fakeReader {
	workspaceType := &tenancyv1alpha1.WorkspaceType{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
		logicalcluster.AnnotationKey: cluster,
	}}}
	if object, ok := t.clusters[cluster]; ok {
		if path, ok := object.Annotations[logicalcluster.PathAnnotationKey]; ok {
			workspaceType.Annotations[logicalcluster.PathAnnotationKey] = path
		}
	}
	for _, set := range set {
		set(workspaceType)
	}
	t.types[cluster+"/"+name] = workspaceType
	return t
}

func (t *fakeReader) LogicalCluster(_ context.Context, cluster logicalcluster.Name) (*corev1alpha1.LogicalCluster, error) {
	return getObject(t.clusters, corev1alpha1.Resource("logicalclusters").Resource, cluster.String())
}

func (t *fakeReader) Workspace(_ context.Context, parent logicalcluster.Name, name string) (*tenancyv1alpha1.Workspace, error) {
	return getObject(t.workspaces, "workspaces", parent.String()+"/"+name)
}

func (t *fakeReader) WorkspaceType(_ context.Context, cluster logicalcluster.Name, name string) (*tenancyv1alpha1.WorkspaceType, error) {
	return getObject(t.types, "workspacetypes", cluster.String()+"/"+name)
}

// setRemote makes a cluster one of another shard: its workspaces are removed.
func (t *fakeReader) setRemote(cluster string) *fakeReader {
	if t.remote == nil {
		t.remote = map[string]bool{}
	}
	t.remote[cluster] = true
	for name := range t.workspaces {
		if strings.HasPrefix(name, cluster+"/") {
			delete(t.workspaces, name)
		}
	}
	return t
}

func (t *fakeReader) ListByPath(reference Reference) []logicalcluster.Name {
	var found []logicalcluster.Name
	for _, object := range t.types {
		cluster := logicalcluster.Of(object)
		if object.Name == reference.Name && canonicalPath(object, cluster) == reference.Path {
			found = append(found, cluster)
		}
	}
	return found
}

func (t *fakeReader) ListByPathLatest(context.Context, Reference) ([]logicalcluster.Name, error) {
	return nil, nil
}

func (t *fakeReader) IsLocal(_ context.Context, cluster logicalcluster.Name) (bool, error) {
	return !t.remote[cluster.String()], nil
}

func (t *fakeReader) CheckSynced() error { return t.notSynced }

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
