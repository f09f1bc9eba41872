// Package metadata contains the plug-ins for labels and annotations of objects of all kinds.
package metadata

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
	"github.com/atoll-dev/atoll/shardserver/admission/rules"
)

// pathResources are the resources whose objects are referenced by path, or need the path of their logical cluster.
var pathResources = sets.New(rules.WorkspaceTypes, rules.APIExports, rules.APIBindings, rules.ClusterCachedResources)

// pathAnnotation sets the canonical path of the logical cluster on objects that are resolved by path from other logical
// clusters, and on every object that has the annotation. LogicalClusters are the source of the path and are not
// changed.
type pathAnnotation struct {
	*admission.Handler
	clusters rules.ClusterReader
}

// NewPathAnnotation returns the plug-in kcp.io/PathAnnotation.
func NewPathAnnotation(config rules.Config) admission.Interface {
	return &pathAnnotation{
		Handler:  admission.NewHandler(admission.Create, admission.Update),
		clusters: rules.NewClusterReader(config.Registry),
	}
}

// Admit implements admission.MutationInterface.
func (p *pathAnnotation) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	obj, annotated := p.requiresAnnotation(a)
	if !annotated {
		return nil
	}
	path, err := p.canonicalPath(ctx, a)
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

// Validate refuses objects whose annotation a later plug-in changed.
func (p *pathAnnotation) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	obj, annotated := p.requiresAnnotation(a)
	if !annotated {
		return nil
	}
	path, err := p.canonicalPath(ctx, a)
	if err != nil || path == "" {
		return err
	}
	got := obj.GetAnnotations()[logicalcluster.PathAnnotationKey]
	if got == "" && a.GetOperation() == admission.Create && a.GetResource().GroupResource() == rules.APIBindings {
		return rules.Retry(a, "its logical cluster") // the mutation did not find it
	}
	if got != path {
		return rules.Forbid(a, "annotation %s must be %q, got %q", logicalcluster.PathAnnotationKey, path, got)
	}
	return nil
}

// requiresAnnotation returns the object and whether it must have the annotation.
func (p *pathAnnotation) requiresAnnotation(a admission.Attributes) (metav1.Object, bool) {
	resource := a.GetResource().GroupResource()
	if resource == rules.LogicalClusters {
		return nil, false
	}
	obj, err := meta.Accessor(a.GetObject())
	if err != nil {
		return nil, false // reviews and the like, which are not stored
	}
	claim, claims := obj.GetAnnotations()[logicalcluster.PathAnnotationKey]
	if a.GetSubresource() != "" {
		// A status update does not change metadata; but some built-in kinds accept new annotations with it.
		old, err := meta.Accessor(a.GetOldObject())
		return obj, err == nil && claims && claim != old.GetAnnotations()[logicalcluster.PathAnnotationKey]
	}
	return obj, claims || pathResources.Has(resource)
}

// canonicalPath returns the value of the annotation, or "" for objects that may lack it.
func (p *pathAnnotation) canonicalPath(ctx context.Context, a admission.Attributes) (string, error) {
	path, err := p.clusters.CanonicalPath(ctx)
	switch {
	case apierrors.IsNotFound(err) && a.GetResource().GroupResource() == rules.APIBindings:
		return "", nil // bindings may be created before their logical cluster
	case apierrors.IsNotFound(err):
		return "", rules.Forbid(a, "the logical cluster does not exist, so annotation %s cannot be set", logicalcluster.PathAnnotationKey)
	case errors.Is(err, rules.ErrNoCluster):
		return "", rules.Forbid(a, "annotation %s cannot be set: %w", logicalcluster.PathAnnotationKey, err)
	case err != nil:
		return "", apierrors.NewInternalError(err)
	}
	return path, nil
}
