package shards

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/proxy/workspacetypes"
)

// Workspace types and the configurations they name, read only where workspaces may bring issuers of their own.

type typeObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Configurations []struct {
			Name string `json:"name"`
		} `json:"authenticationConfigurations"`
	} `json:"spec"`
}

type typeObjectList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []typeObject `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (o *typeObject) DeepCopyObject() runtime.Object {
	out := *o
	o.DeepCopyInto(&out.ObjectMeta)
	out.Spec.Configurations = append(out.Spec.Configurations[:0:0], o.Spec.Configurations...)
	return &out
}

// DeepCopyObject implements runtime.Object.
func (l *typeObjectList) DeepCopyObject() runtime.Object {
	out := *l
	out.Items = make([]typeObject, len(l.Items))
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopyObject().(*typeObject)
	}
	return &out
}

// catalogStore hands one kind of objects to the catalog.
type catalogStore[T any] struct {
	shard   string
	health  *health
	read    func(obj any) (workspacetypes.Key, []T, error)
	put     func(shard string, key workspacetypes.Key, values []T)
	replace func(shard string, all map[workspacetypes.Key][]T)
}

var _ cache.ReflectorStore = catalogStore[string]{}

func newTypeStore(shard string, catalog *workspacetypes.Catalog, h *health) catalogStore[string] {
	return catalogStore[string]{shard: shard, health: h, put: catalog.PutType, replace: catalog.ReplaceTypes,
		read: func(obj any) (workspacetypes.Key, []string, error) {
			o, ok := obj.(*typeObject)
			if !ok {
				return workspacetypes.Key{}, nil, fmt.Errorf("got %T, expected a WorkspaceType", obj)
			}
			var names []string
			for _, named := range o.Spec.Configurations {
				names = append(names, named.Name)
			}
			key, err := keyOf(o)
			return key, names, err
		}}
}

func newConfigurationStore(shard string, catalog *workspacetypes.Catalog, h *health) catalogStore[tenancyv1alpha1.JWTAuthenticator] {
	return catalogStore[tenancyv1alpha1.JWTAuthenticator]{shard: shard, health: h, put: catalog.PutConfiguration, replace: catalog.ReplaceConfigurations,
		read: func(obj any) (workspacetypes.Key, []tenancyv1alpha1.JWTAuthenticator, error) {
			o, ok := obj.(*tenancyv1alpha1.WorkspaceAuthenticationConfiguration)
			if !ok {
				return workspacetypes.Key{}, nil, fmt.Errorf("got %T, expected a WorkspaceAuthenticationConfiguration", obj)
			}
			key, err := keyOf(o)
			return key, o.Spec.JWT, err
		}}
}

func keyOf(o metav1.Object) (workspacetypes.Key, error) {
	cluster, err := logicalcluster.ParseName(o.GetAnnotations()[logicalcluster.AnnotationKey])
	if err != nil {
		return workspacetypes.Key{}, fmt.Errorf("%q: annotation %s: %w", o.GetName(), logicalcluster.AnnotationKey, err)
	}
	return workspacetypes.Key{Cluster: cluster, Name: o.GetName()}, nil
}

// Add implements cache.ReflectorStore.
func (s catalogStore[T]) Add(obj any) error {
	key, values, err := s.read(obj)
	if err == nil {
		s.put(s.shard, key, values)
	}
	return err
}

// Update implements cache.ReflectorStore.
func (s catalogStore[T]) Update(obj any) error { return s.Add(obj) }

// Delete implements cache.ReflectorStore.
func (s catalogStore[T]) Delete(obj any) error {
	key, _, err := s.read(obj)
	if err == nil {
		s.put(s.shard, key, nil)
	}
	return err
}

// Replace implements cache.ReflectorStore.
func (s catalogStore[T]) Replace(objs []any, _ string) error {
	all := make(map[workspacetypes.Key][]T, len(objs))
	for _, obj := range objs {
		key, values, err := s.read(obj)
		if err != nil {
			klog.ErrorS(err, "Ignoring an object of a shard", "shard", s.shard)
			continue
		}
		all[key] = values
	}
	s.replace(s.shard, all)
	s.health.set(true, nil)
	return nil
}

// Resync implements cache.ReflectorStore.
func (s catalogStore[T]) Resync() error { return nil }
