package shards

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/reflector"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/proxy/workspacetypes"
)

// WorkspaceTypes and the WorkspaceAuthenticationConfigurations that they name are watched with the feature gate
// WorkspaceAuthentication only.

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

// typeEntry is one object in the registry.
type typeEntry[T any] struct {
	key    workspacetypes.Key
	values []T
}

// newRegistryHandler passes one kind of objects to the registry.
func newRegistryHandler[T any](status *resourceStatus, convert func(runtime.Object) (typeEntry[T], error),
	put func(shard string, key workspacetypes.Key, values []T), replace func(shard string, all map[workspacetypes.Key][]T)) reflector.Handler {
	return &handler[typeEntry[T]]{
		resourceStatus: status,
		convert:        convert,
		put:            func(e typeEntry[T]) { put(status.shard, e.key, e.values) },
		remove:         func(e typeEntry[T]) { put(status.shard, e.key, nil) },
		replace: func(entries []typeEntry[T]) {
			all := make(map[workspacetypes.Key][]T, len(entries))
			for _, e := range entries {
				all[e.key] = e.values
			}
			replace(status.shard, all)
		},
	}
}

func newTypeHandler(status *resourceStatus, types *workspacetypes.Registry) reflector.Handler {
	return newRegistryHandler(status, func(object runtime.Object) (e typeEntry[string], err error) {
		o, ok := object.(*typeObject)
		if !ok {
			return e, fmt.Errorf("got %T, expected a WorkspaceType", object)
		}
		for _, configuration := range o.Spec.Configurations {
			e.values = append(e.values, configuration.Name)
		}
		e.key, err = registryKey(o)
		return e, err
	}, types.PutType, types.ReplaceTypes)
}

func newConfigurationHandler(status *resourceStatus, types *workspacetypes.Registry) reflector.Handler {
	return newRegistryHandler(status, func(object runtime.Object) (e typeEntry[tenancyv1alpha1.JWTAuthenticator], err error) {
		o, ok := object.(*tenancyv1alpha1.WorkspaceAuthenticationConfiguration)
		if !ok {
			return e, fmt.Errorf("got %T, expected a WorkspaceAuthenticationConfiguration", object)
		}
		e.values = o.Spec.JWT
		e.key, err = registryKey(o)
		return e, err
	}, types.PutConfiguration, types.ReplaceConfigurations)
}

func registryKey(o metav1.Object) (workspacetypes.Key, error) {
	cluster, err := logicalcluster.ParseName(o.GetAnnotations()[logicalcluster.AnnotationKey])
	if err != nil {
		return workspacetypes.Key{}, fmt.Errorf("%q: annotation %s: %w", o.GetName(), logicalcluster.AnnotationKey, err)
	}
	return workspacetypes.Key{Cluster: cluster, Name: o.GetName()}, nil
}
