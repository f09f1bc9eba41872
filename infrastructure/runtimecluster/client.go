package runtimecluster

import (
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// NewClient returns a client of a runtime cluster. Its RESTMapper can be reset: the one of controller-runtime discovers added kinds and
// versions, but never removes one that the cluster has stopped serving.
func NewClient(config *rest.Config) (client.Client, error) {
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	known := &kinds{discover: func() (meta.RESTMapper, error) { return apiutil.NewDynamicRESTMapper(config, httpClient) }}
	if err := known.reset(); err != nil {
		return nil, err
	}
	return client.New(config, client.Options{HTTPClient: httpClient, Mapper: known})
}

// kinds is a meta.ResettableRESTMapper.
type kinds struct {
	discover func() (meta.RESTMapper, error)
	current  atomic.Pointer[meta.RESTMapper]
}

var _ meta.ResettableRESTMapper = &kinds{}

func (k *kinds) reset() error {
	fresh, err := k.discover()
	if err == nil {
		k.current.Store(&fresh)
	}
	return err
}

// Reset discards all kinds. The RESTMapper discovers them again when they are used.
func (k *kinds) Reset() { _ = k.reset() } // the only error is an invalid client configuration, which NewClient has returned

func (k *kinds) mapper() meta.RESTMapper { return *k.current.Load() }

func (k *kinds) KindFor(resource schema.GroupVersionResource) (schema.GroupVersionKind, error) {
	return k.mapper().KindFor(resource)
}

func (k *kinds) KindsFor(resource schema.GroupVersionResource) ([]schema.GroupVersionKind, error) {
	return k.mapper().KindsFor(resource)
}

func (k *kinds) ResourceFor(input schema.GroupVersionResource) (schema.GroupVersionResource, error) {
	return k.mapper().ResourceFor(input)
}

func (k *kinds) ResourcesFor(input schema.GroupVersionResource) ([]schema.GroupVersionResource, error) {
	return k.mapper().ResourcesFor(input)
}

func (k *kinds) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	return k.mapper().RESTMapping(kind, versions...)
}

func (k *kinds) RESTMappings(kind schema.GroupKind, versions ...string) ([]*meta.RESTMapping, error) {
	return k.mapper().RESTMappings(kind, versions...)
}

func (k *kinds) ResourceSingularizer(resource string) (string, error) {
	return k.mapper().ResourceSingularizer(resource)
}
