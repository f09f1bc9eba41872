package crdstorage

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/registry/rest"
)

// newRequestScope returns the request scope of a resource for the upstream read handlers, without the serializer.
func newRequestScope(resource schema.GroupVersionResource, kind schema.GroupVersionKind, namespaced bool, selectable []string) handlers.RequestScope {
	return handlers.RequestScope{
		Namer:               handlers.ContextBasedNaming{Namer: meta.NewAccessor(), ClusterScoped: !namespaced},
		ParameterCodec:      metav1.ParameterCodec,
		StandardSerializers: textSerializers(),
		TableConvertor:      rest.NewDefaultTableConvertor(resource.GroupResource()), // tables are negotiated here and served by the upstream handler
		Convertor:           fieldLabelConvertor{namespaced: namespaced, selectable: selectable},
		Resource:            resource,
		Kind:                kind,
		HubGroupVersion:     kind.GroupVersion(),
		MetaGroupVersion:    metav1.SchemeGroupVersion,
	}
}

// fieldLabelConvertor validates field selectors. Reads need no other conversion.
type fieldLabelConvertor struct {
	namespaced bool
	selectable []string
}

var errNoConversion = errors.New("reads of stored objects do not convert")

// ConvertFieldLabel implements runtime.ObjectConvertor, with upstream's message.
func (f fieldLabelConvertor) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	if label == nameField || (label == namespaceField && f.namespaced) || slices.Contains(f.selectable, label) {
		return label, value, nil
	}
	return "", "", fmt.Errorf("field label not supported: %s", label)
}

// Convert implements runtime.ObjectConvertor.
func (fieldLabelConvertor) Convert(_, _, _ any) error { return errNoConversion }

// ConvertToVersion implements runtime.ObjectConvertor.
func (fieldLabelConvertor) ConvertToVersion(runtime.Object, runtime.GroupVersioner) (runtime.Object, error) {
	return nil, errNoConversion
}
