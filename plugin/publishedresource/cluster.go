package publishedresource

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/plugin/connection"
	"github.com/atoll-dev/atoll/syncagent/projection"
	"github.com/atoll-dev/atoll/syncagent/publication"
	"github.com/atoll-dev/atoll/syncagent/related"
	"github.com/atoll-dev/atoll/syncagent/source"
)

// serviceCluster is the server of the kubeconfig.
type serviceCluster struct {
	discovery source.Discovery
	client    client.Client
}

func connect(flags *connection.Flags) (*serviceCluster, error) {
	session, err := flags.Open()
	if err != nil {
		return nil, err
	}
	config := session.Config()
	documents, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	return &serviceCluster{discovery: documents, client: c}, nil
}

// definition returns the definition of the source.
func (s *serviceCluster) definition(ctx context.Context, p *publication.Publication) (*apiextensionsv1.CustomResourceDefinition, error) {
	return source.Definition(ctx, s.discovery, s.client, p.Spec.Resource.APIGroup, p.Spec.Resource.Kind)
}

// check returns what is wrong with a publication on this cluster. The error is for requests that failed.
func (s *serviceCluster) check(ctx context.Context, p *publication.Publication) (field.ErrorList, error) {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	definition, err := s.definition(ctx, p)
	switch {
	case errors.Is(err, source.ErrNotServed):
		errs = append(errs, field.NotFound(spec.Child("resource"), fmt.Sprintf("%s in group %q", p.Spec.Resource.Kind, p.Spec.Resource.APIGroup)))
	case err != nil:
		return nil, err
	default:
		if _, err := projection.Project(definition, &p.Spec); err != nil {
			var known *field.Error
			if !errors.As(err, &known) {
				known = field.Invalid(spec.Child("projection"), "", err.Error())
			}
			errs = append(errs, known)
		}
	}
	for i := range p.Spec.Related {
		at := spec.Child("related").Index(i)
		gvr := serviceResource(p.Spec.Related[i])
		served, err := s.serves(ctx, gvr)
		if err != nil {
			return nil, err
		}
		if !served {
			errs = append(errs, field.NotFound(at, fmt.Sprintf("%s in %s", gvr.Resource, gvr.GroupVersion())))
		}
	}
	return errs, nil
}

// serviceResource returns the resource of an entry on the service cluster.
func serviceResource(entry syncagentv1alpha1.RelatedResourceSpec) schema.GroupVersionResource {
	if entry.Origin == syncagentv1alpha1.RelatedResourceOriginService {
		return related.OriginResource(entry)
	}
	return related.CopyResource(entry)
}

func (s *serviceCluster) serves(ctx context.Context, gvr schema.GroupVersionResource) (bool, error) {
	list, err := s.discovery.ServerResourcesForGroupVersionWithContext(ctx, gvr.GroupVersion().String())
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the resources of %s: %w", gvr.GroupVersion(), err)
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == gvr.Resource }), nil
}
