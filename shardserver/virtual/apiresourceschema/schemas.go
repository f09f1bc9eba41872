package apiresourceschema

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/rest"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/storage"
	"github.com/atoll-dev/atoll/shardserver/virtual"
)

var schemas = apisv1alpha1.Resource("apiresourceschemas")

// schemaStorage serves the schemas of the exports that a logical cluster binds, each as it is in the logical cluster of
// its provider.
type schemaStorage struct {
	virtual.Description
	registry *storage.Registry
	exports  Exports
	bindings *storage.Reader[*apisv1alpha2.APIBinding]
}

var (
	_ rest.Getter  = &schemaStorage{}
	_ rest.Lister  = &schemaStorage{}
	_ rest.Watcher = &schemaStorage{}
)

func (s *schemaStorage) New() runtime.Object     { return &apisv1alpha1.APIResourceSchema{} }
func (s *schemaStorage) NewList() runtime.Object { return &apisv1alpha1.APIResourceSchemaList{} }
func (s *schemaStorage) Destroy()                {}

// Get implements rest.Getter. If several providers have a schema of the name, it returns that of the first logical cluster
// by name.
func (s *schemaStorage) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	all, err := s.listSchemas(ctx)
	if err != nil {
		return nil, err
	}
	for _, found := range all {
		if found.Name == name {
			copied := *found // the encoder sets its kind
			return &copied, nil
		}
	}
	return nil, apierrors.NewNotFound(schemas, name)
}

// List implements rest.Lister. It ignores limits.
func (s *schemaStorage) List(ctx context.Context, options *internalversion.ListOptions) (runtime.Object, error) {
	version, err := s.currentResourceVersion(ctx)
	if err != nil {
		return nil, err
	}
	all, err := s.listSchemas(ctx)
	if err != nil {
		return nil, err
	}
	list := &apisv1alpha1.APIResourceSchemaList{ListMeta: metav1.ListMeta{ResourceVersion: version}, Items: []apisv1alpha1.APIResourceSchema{}}
	for _, found := range all {
		if matchesOptions(options, found) {
			list.Items = append(list.Items, *found)
		}
	}
	return list, nil
}

func matchesOptions(options *internalversion.ListOptions, found *apisv1alpha1.APIResourceSchema) bool {
	if options == nil {
		return true
	}
	return (options.LabelSelector == nil || options.LabelSelector.Matches(labels.Set(found.Labels))) &&
		(options.FieldSelector == nil || options.FieldSelector.Matches(fields.Set{"metadata.name": found.Name}))
}

// Watch implements rest.Watcher. It ends at once, so that clients list again, because schemas appear and disappear with
// bindings without an event of their own.
func (s *schemaStorage) Watch(context.Context, *internalversion.ListOptions) (watch.Interface, error) {
	return watch.NewEmptyWatch(), nil
}

// listBoundBindings returns the bindings of the context's logical cluster in phase Bound.
func (s *schemaStorage) listBoundBindings(ctx context.Context) ([]*apisv1alpha2.APIBinding, error) {
	all, err := s.bindings.ListLatest(ctx, "", nil)
	if err != nil {
		return nil, fmt.Errorf("listing the bindings of the logical cluster: %w", err)
	}
	return slices.DeleteFunc(all, func(binding *apisv1alpha2.APIBinding) bool {
		return binding.Status.Phase != apisv1alpha2.APIBindingPhaseBound
	}), nil
}

// listSchemas returns the existing schemas, ordered by name and logical cluster.
func (s *schemaStorage) listSchemas(ctx context.Context) ([]*apisv1alpha1.APIResourceSchema, error) {
	bound, err := s.listBoundBindings(ctx)
	if err != nil {
		return nil, err
	}
	var found []*apisv1alpha1.APIResourceSchema
	for _, binding := range bound {
		bindingSchemas, err := s.listBindingSchemas(ctx, binding)
		if err != nil {
			return nil, err
		}
		found = append(found, bindingSchemas...)
	}
	slices.SortFunc(found, func(a, b *apisv1alpha1.APIResourceSchema) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(logicalcluster.Of(a).String(), logicalcluster.Of(b).String()))
	})
	return slices.CompactFunc(found, func(a, b *apisv1alpha1.APIResourceSchema) bool { return a.UID == b.UID }), nil
}

// listBindingSchemas returns the schemas of the export of a binding.
func (s *schemaStorage) listBindingSchemas(ctx context.Context, binding *apisv1alpha2.APIBinding) ([]*apisv1alpha1.APIResourceSchema, error) {
	cluster, err := logicalcluster.ParseName(binding.Status.APIExportClusterName)
	if err != nil || binding.Spec.Reference.Export == nil {
		return nil, nil
	}
	export, err := s.exports.Get(ctx, bindings.ExportKey{Cluster: cluster, Name: binding.Spec.Reference.Export.Name})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the export of binding %q: %w", binding.Name, err)
	}
	var found []*apisv1alpha1.APIResourceSchema
	for _, resource := range export.Spec.Resources {
		resourceSchema, err := s.exports.GetSchema(ctx, cluster, resource.Schema)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading APIResourceSchema %q of %q: %w", resource.Schema, cluster, err)
		}
		found = append(found, resourceSchema)
	}
	return found, nil
}

// currentResourceVersion returns the resource version of a list of the bindings of the logical cluster.
func (s *schemaStorage) currentResourceVersion(ctx context.Context) (string, error) {
	resource, err := s.registry.Get(s.bindings.Resource())
	if err != nil {
		return "", err
	}
	list, err := resource.Store.List(ctx, &internalversion.ListOptions{Limit: 1})
	if err != nil {
		return "", fmt.Errorf("listing the bindings of the logical cluster: %w", err)
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return "", err
	}
	return accessor.GetResourceVersion(), nil
}
