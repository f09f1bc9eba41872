// Package source finds the published resource on the service cluster, and returns its CustomResourceDefinition. It synthesizes a
// definition for resources that have none, such as Roles and ConfigMaps.
package source

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrNotServed means that the service cluster does not serve the resource.
var ErrNotServed = errors.New("the service cluster does not serve it")

// unapproved is the value of the approval annotation for protected groups if a definition does not have the annotation.
const unapproved = "unapproved, published by a sync agent"

// coreGroup replaces the empty group in names.
const coreGroup = "core"

// Discovery reads the discovery and the OpenAPI documents of the service cluster.
type Discovery interface {
	discovery.ServerGroupsInterfaceWithContext
	discovery.ServerResourcesInterfaceWithContext
	discovery.OpenAPIV3SchemaInterfaceWithContext
}

// Definition returns the definition of a kind: the one on the service cluster, reduced to the fields that describe the resource, or one
// that is synthesized from discovery and OpenAPI. The error wraps ErrNotServed if the kind does not exist. The reader should not be a
// cache, because complete definitions are large.
func Definition(ctx context.Context, d Discovery, reader client.Reader, group, kind string) (*apiextensionsv1.CustomResourceDefinition, error) {
	found, err := find(ctx, d, group, kind)
	if err != nil {
		return nil, fmt.Errorf("finding kind %s in group %q: %w", kind, group, err)
	}
	if group != "" {
		definition := &apiextensionsv1.CustomResourceDefinition{}
		switch err := reader.Get(ctx, client.ObjectKey{Name: found.plural + "." + group}, definition); {
		case err == nil:
			return reduce(definition), nil
		case !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("reading CustomResourceDefinition %s.%s: %w", found.plural, group, err)
		}
	}
	definition, err := synthesize(ctx, d, found)
	if err != nil {
		return nil, fmt.Errorf("making a definition of kind %s in group %q: %w", kind, group, err)
	}
	return definition, nil
}

// reduce returns the definition with only the fields that describe the resource. It removes the conversion, because kcp cannot call
// webhooks of the service cluster.
func reduce(definition *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	spec := definition.Spec.DeepCopy()
	result := newDefinition(definition.Name, spec.Group, definition.Annotations[apiextensionsv1.KubeAPIApprovedAnnotation])
	result.Generation = definition.Generation
	spec.Conversion = nil
	for i := range spec.Versions {
		version := &spec.Versions[i]
		if !isStructural(version.Schema) {
			version.Schema = &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}}
			version.Schema.OpenAPIV3Schema.XPreserveUnknownFields = ptr.To(true)
		} else if spec.PreserveUnknownFields {
			version.Schema.OpenAPIV3Schema.XPreserveUnknownFields = ptr.To(true)
		}
	}
	spec.PreserveUnknownFields = false
	if spec.Names.ListKind == "" {
		spec.Names.ListKind = spec.Names.Kind + "List"
	}
	if spec.Names.Singular == "" {
		spec.Names.Singular = strings.ToLower(spec.Names.Kind)
	}
	result.Spec = *spec
	return result
}

// newDefinition returns a definition without a spec. Resources of protected groups need an approval.
func newDefinition(name, group, approval string) *apiextensionsv1.CustomResourceDefinition {
	definition := &apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}
	if approval == "" && IsProtected(group) {
		approval = unapproved
	}
	if approval != "" {
		definition.Annotations = map[string]string{apiextensionsv1.KubeAPIApprovedAnnotation: approval}
	}
	return definition
}

// IsProtected reports whether a group belongs to Kubernetes, so that its resources need an approval.
func IsProtected(group string) bool {
	return group == "" || apihelpers.IsProtectedCommunityGroup(group)
}

// isStructural reports whether a schema is structural. Definitions of old clusters may have other schemas.
func isStructural(validation *apiextensionsv1.CustomResourceValidation) bool {
	if validation == nil || validation.OpenAPIV3Schema == nil {
		return false
	}
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(validation.OpenAPIV3Schema, &internal, nil); err != nil {
		return false
	}
	structural, err := structuralschema.NewStructural(&internal)
	return err == nil && len(structuralschema.ValidateStructural(nil, structural)) == 0
}
