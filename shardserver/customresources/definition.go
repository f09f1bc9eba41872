package customresources

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strconv"

	apiextensionsinternal "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/apis/apiextensions"
)

// key addresses a definition.
type key struct {
	cluster logicalcluster.Name
	name    string
}

// definition is what the catalog keeps of one definition of one logical cluster.
type definition struct {
	// version is the resource version of the object that this was read from.
	version uint64
	// resource is what it defines; it never changes.
	resource schema.GroupResource
	// opened says that the storage of the resource is open for this definition.
	opened bool
	// content is nil while the definition is not served.
	content *Content
	// terminating says that instances are on their way out and that none may be created.
	terminating bool
	// place is where requests write and watch its objects. Its writers rise under the catalog's lock only, and not any
	// more once terminating is set.
	place
}

// observed is what an object says that is news for the catalog.
type observed struct {
	key
	version     uint64
	resource    schema.GroupResource
	terminating bool
	// served says that the definition has a content; hash is its identity.
	served bool
	hash   apiextensions.Hash
	// anyPathNames says that names of objects may be all that a path can hold.
	anyPathNames bool
	object       *apiextensionsinternal.CustomResourceDefinition
}

// observe reads a definition. Equal specifications with equal accepted names have equal hashes: nothing else of a
// definition has a part in how its objects are served.
func observe(shared *apiextensions.Shared, object *apiextensionsinternal.CustomResourceDefinition) (observed, error) {
	o := observed{
		key:         key{cluster: logicalcluster.Of(object), name: object.Name},
		resource:    schema.GroupResource{Group: object.Spec.Group, Resource: object.Spec.Names.Plural},
		terminating: apiextensionsinternal.IsCRDConditionTrue(object, apiextensionsinternal.Terminating),
		served:      apiextensionsinternal.IsCRDConditionTrue(object, apiextensionsinternal.Established),
		object:      object,
	}
	var err error
	if o.version, err = strconv.ParseUint(object.ResourceVersion, 10, 64); err != nil {
		return o, fmt.Errorf("definition %s of %s: %w", o.name, o.cluster, err)
	}
	if !o.served {
		return o, nil
	}
	spec, err := shared.HashOf(object)
	if err != nil {
		return o, err
	}
	names, err := json.Marshal(object.Status.AcceptedNames)
	if err != nil {
		return o, fmt.Errorf("definition %s of %s: encoding its names: %w", o.name, o.cluster, err)
	}
	content := append(spec[:], names...)
	if o.cluster == logicalcluster.BoundCRDs && object.Annotations[apiindex.NameValidationAnnotationKey] == string(apisv1alpha1.NameValidationPathSegmentName) {
		o.anyPathNames = true
		content = append(content, apisv1alpha1.NameValidationPathSegmentName...)
	}
	o.hash = sha256.Sum256(content)
	return o, nil
}
