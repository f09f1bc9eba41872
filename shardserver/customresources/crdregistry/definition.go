package crdregistry

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"

	apiextensionsinternal "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/apis/apiextensions"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

type definitionKey struct {
	cluster logicalcluster.Name
	name    string
}

// definition is the state of one definition of one logical cluster.
type definition struct {
	// version is the revision in the resource version of the object.
	version uint64
	// resource is the defined resource, which is immutable.
	resource schema.GroupResource
	// hasStorage is set if the definition references the storage of the resource.
	hasStorage bool
	// crd is nil while the definition is not served.
	crd *ref[*CompiledCRD]
	// terminating forbids the creation of objects.
	terminating bool
	// inFlight tracks the requests in flight. Its writers increase under the registry's mu only, and only until
	// terminating is set.
	inFlight
}

// parsedDefinition has what the registry needs of a definition object.
type parsedDefinition struct {
	definitionKey
	version     uint64
	resource    schema.GroupResource
	terminating bool
	// served is set for an established definition. Only then hash is set.
	served bool
	hash   apiextensions.Hash
	// pathSegmentNames is CompiledCRD.PathSegmentNames.
	pathSegmentNames bool
	object           *apiextensionsinternal.CustomResourceDefinition
}

// parseDefinition parses a definition object. Definitions with equal specifications and equal accepted names have equal
// hashes: no other field affects how objects are served.
func parseDefinition(specs *apiextensions.SpecInterner, object *apiextensionsinternal.CustomResourceDefinition) (parsedDefinition, error) {
	d := parsedDefinition{
		definitionKey: definitionKey{cluster: logicalcluster.Of(object), name: object.Name},
		resource:      schema.GroupResource{Group: object.Spec.Group, Resource: object.Spec.Names.Plural},
		terminating:   apiextensionsinternal.IsCRDConditionTrue(object, apiextensionsinternal.Terminating),
		served:        apiextensionsinternal.IsCRDConditionTrue(object, apiextensionsinternal.Established),
		object:        object,
	}
	var err error
	if d.version, err = storage.ParseRevision(object.ResourceVersion); err != nil {
		return d, fmt.Errorf("definition %s of %s: %w", d.name, d.cluster, err)
	}
	if !d.served {
		return d, nil
	}
	spec, err := specs.HashOf(object)
	if err != nil {
		return d, err
	}
	names, err := json.Marshal(object.Status.AcceptedNames)
	if err != nil {
		return d, fmt.Errorf("definition %s of %s: encoding its names: %w", d.name, d.cluster, err)
	}
	hashInput := append(spec[:], names...)
	if d.cluster == logicalcluster.BoundCRDs && object.Annotations[apiindex.NameValidationAnnotationKey] == string(apisv1alpha1.NameValidationPathSegmentName) {
		d.pathSegmentNames = true
		hashInput = append(hashInput, apisv1alpha1.NameValidationPathSegmentName...)
	}
	d.hash = sha256.Sum256(hashInput)
	return d, nil
}
