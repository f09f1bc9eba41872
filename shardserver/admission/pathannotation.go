package admission

import (
	"context"
	"errors"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// foundByPath are the resources whose objects others refer to by path, or that say by it where they belong.
var foundByPath = sets.New(workspaceTypes, apiExports, apiBindings, clusterCachedResources)

// pathAnnotation writes the canonical path of the logical cluster on objects that are found by path from elsewhere,
// and on every object that claims a path. Logical clusters are where the path comes from; they are left alone.
type pathAnnotation struct {
	*admission.Handler
	clusters clusterReader
}

func newPathAnnotation(config Config) admission.Interface {
	return &pathAnnotation{
		Handler:  admission.NewHandler(admission.Create, admission.Update),
		clusters: newClusterReader(config.Registry),
	}
}

// Admit implements admission.MutationInterface.
func (p *pathAnnotation) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	obj, annotated := p.annotated(a)
	if !annotated {
		return nil
	}
	path, err := p.path(ctx, a)
	if err != nil || path == "" {
		return err
	}
	if obj.GetAnnotations()[logicalcluster.PathAnnotationKey] == path {
		return nil
	}
	annotations := maps.Clone(obj.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[logicalcluster.PathAnnotationKey] = path
	obj.SetAnnotations(annotations)
	return nil
}

// Validate refuses what a later plug-in made of the annotation.
func (p *pathAnnotation) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	obj, annotated := p.annotated(a)
	if !annotated {
		return nil
	}
	path, err := p.path(ctx, a)
	if err != nil || path == "" {
		return err
	}
	if got := obj.GetAnnotations()[logicalcluster.PathAnnotationKey]; got != path {
		return forbid(a, "annotation %s must be %q, got %q", logicalcluster.PathAnnotationKey, path, got)
	}
	return nil
}

// annotated returns the object and whether it has to carry the annotation.
func (p *pathAnnotation) annotated(a admission.Attributes) (metav1.Object, bool) {
	resource := a.GetResource().GroupResource()
	if resource == logicalClusters {
		return nil, false
	}
	obj, err := meta.Accessor(a.GetObject())
	if err != nil {
		return nil, false // reviews and the like, which are not stored
	}
	claim, claims := obj.GetAnnotations()[logicalcluster.PathAnnotationKey]
	if a.GetSubresource() != "" {
		// A status is written without changing what the object says; some built-in kinds take new annotations along with it.
		old, err := meta.Accessor(a.GetOldObject())
		return obj, err == nil && claims && claim != old.GetAnnotations()[logicalcluster.PathAnnotationKey]
	}
	return obj, claims || foundByPath.Has(resource)
}

// path returns what the annotation has to say, or "" for what may go without.
func (p *pathAnnotation) path(ctx context.Context, a admission.Attributes) (string, error) {
	path, err := p.clusters.canonicalPath(ctx)
	switch {
	case apierrors.IsNotFound(err) && a.GetResource().GroupResource() == apiBindings:
		return "", nil // bindings may come before their logical cluster
	case apierrors.IsNotFound(err):
		return "", forbid(a, "the logical cluster does not exist, so annotation %s cannot be set", logicalcluster.PathAnnotationKey)
	case errors.Is(err, errNoCluster):
		return "", forbid(a, "annotation %s cannot be set: %w", logicalcluster.PathAnnotationKey, err)
	case err != nil:
		return "", apierrors.NewInternalError(err)
	}
	return path, nil
}
