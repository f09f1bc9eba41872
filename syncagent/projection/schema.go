package projection

import (
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/internal/apiresourceschema"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/syncagent/publication"
)

// hashLength is the number of hexadecimal digits in the name of a schema.
const hashLength = 8

// Schema returns the APIResourceSchema of a projected definition. Its name contains a hash of the content, so that equal contents have
// one schema.
func Schema(projected *apiextensionsv1.CustomResourceDefinition, agentName string) (*apisv1alpha1.APIResourceSchema, error) {
	hash, err := contentHash(projected)
	if err != nil {
		return nil, err
	}
	schema, err := apiresourceschema.FromDefinition(projected, "v"+hash)
	if err != nil {
		return nil, fmt.Errorf("making the APIResourceSchema of %s: %w", projected.Name, err)
	}
	if schema.Annotations == nil {
		schema.Annotations = map[string]string{}
	}
	schema.Annotations[publication.AnnotationSourceGeneration] = strconv.FormatInt(projected.Generation, 10)
	schema.Annotations[publication.LabelAgentName] = agentName
	schema.Labels = map[string]string{publication.LabelAgentName: agentName}
	return schema, nil
}

// contentHash returns the first digits of the SHA-1 hash of the spec, without its conversion.
func contentHash(projected *apiextensionsv1.CustomResourceDefinition) (string, error) {
	spec := projected.Spec
	spec.Conversion = nil
	text, err := json.Marshal(spec)
	if err != nil {
		return "", fmt.Errorf("hashing definition %s: %w", projected.Name, err)
	}
	sum := sha1.Sum(text)
	return hex.EncodeToString(sum[:])[:hashLength], nil
}

// Resources returns the resource on the service cluster and in workspaces, in the version in which objects are synced: the storage
// version of workspaces if it is served, or else the highest served version, on both sides.
func Resources(definition, projected *apiextensionsv1.CustomResourceDefinition, spec *syncagentv1alpha1.PublishedResourceSpec) (service, workspace workspaces.Resource) {
	version := syncedVersion(projected.Spec.Versions)
	workspace = resourceOf(projected, version)
	for _, original := range definition.Spec.Versions {
		if original.Served && selects(spec.Resource, original) && projectedVersion(spec.Projection, original.Name) == version {
			return resourceOf(definition, original.Name), workspace
		}
	}
	return workspaces.Resource{}, workspace
}

// syncedVersion returns the version in which objects are synced.
func syncedVersion(versions []apiextensionsv1.CustomResourceDefinitionVersion) string {
	for _, version := range versions {
		if version.Storage && version.Served {
			return version.Name
		}
	}
	if names := served(versions); len(names) > 0 {
		return names[0]
	}
	return ""
}

func resourceOf(definition *apiextensionsv1.CustomResourceDefinition, version string) workspaces.Resource {
	resource := workspaces.Resource{Resource: definition.Spec.Names.Plural, Namespaced: definition.Spec.Scope == apiextensionsv1.NamespaceScoped}
	resource.Group, resource.Version, resource.Kind = definition.Spec.Group, version, definition.Spec.Names.Kind
	for _, candidate := range definition.Spec.Versions {
		if candidate.Name == version {
			resource.HasStatus = candidate.Subresources != nil && candidate.Subresources.Status != nil
		}
	}
	return resource
}
