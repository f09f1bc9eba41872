package bindings

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// resourcePool stores every resource and every set of resources once, with the number of their users. Callers must hold
// the mutex of the index.
type resourcePool struct {
	sets      map[string]*resourceSet
	resources map[Resource]*pooledResource
	// identities and schemas index resources.
	identities map[resourceIdentity][]*Resource
	schemas    map[types.UID][]*Resource
}

type pooledResource struct {
	resource Resource
	refs     int
}

type resourceIdentity struct {
	schema.GroupResource
	hash string
}

// resourceSet is the immutable set of resources that one or more bindings bind.
type resourceSet struct {
	// resources are ordered by group and resource.
	resources []*Resource
	key       string
	refs      int
}

func newResourcePool() resourcePool {
	return resourcePool{
		sets: map[string]*resourceSet{}, resources: map[Resource]*pooledResource{},
		identities: map[resourceIdentity][]*Resource{}, schemas: map[types.UID][]*Resource{},
	}
}

// acquire returns the set of some resources and increments its reference count.
func (r *resourcePool) acquire(resources []Resource) *resourceSet {
	slices.SortFunc(resources, func(a, b Resource) int { return compareResources(a.GroupResource, b.GroupResource) })
	key := keyOf(resources)
	known := r.sets[key]
	if known == nil {
		known = &resourceSet{key: key, resources: make([]*Resource, 0, len(resources))}
		for _, resource := range resources {
			known.resources = append(known.resources, r.acquireResource(resource))
		}
		r.sets[key] = known
	}
	known.refs++
	return known
}

// acquireResource returns the pooled resource and increments its reference count.
func (r *resourcePool) acquireResource(value Resource) *Resource {
	known := r.resources[value]
	if known == nil {
		known = &pooledResource{resource: value}
		r.resources[value] = known
		identity := resourceIdentity{value.GroupResource, value.Identity}
		r.identities[identity] = append(r.identities[identity], &known.resource)
		r.schemas[value.SchemaUID] = append(r.schemas[value.SchemaUID], &known.resource)
	}
	known.refs++
	return &known.resource
}

// release decrements the reference count of a set and deletes the set and its unused resources with the last reference.
func (r *resourcePool) release(set *resourceSet) {
	if set == nil {
		return
	}
	if set.refs--; set.refs > 0 {
		return
	}
	delete(r.sets, set.key)
	for _, resource := range set.resources {
		known := r.resources[*resource]
		if known.refs--; known.refs == 0 {
			delete(r.resources, *resource)
			deletePointer(r.identities, resourceIdentity{resource.GroupResource, resource.Identity}, resource)
			deletePointer(r.schemas, resource.SchemaUID, resource)
		}
	}
}

func deletePointer[K comparable](from map[K][]*Resource, key K, resource *Resource) {
	if from[key] = slices.DeleteFunc(from[key], func(r *Resource) bool { return r == resource }); len(from[key]) == 0 {
		delete(from, key)
	}
}

// get returns the resource with a name, or nil.
func (s *resourceSet) get(gr schema.GroupResource) *Resource {
	at, found := slices.BinarySearchFunc(s.resources, gr, func(r *Resource, gr schema.GroupResource) int { return compareResources(r.GroupResource, gr) })
	if !found {
		return nil
	}
	return s.resources[at]
}

// all returns the resources of a set, which may be nil.
func (s *resourceSet) all() []*Resource {
	if s == nil {
		return nil
	}
	return s.resources
}

// keyOf returns the key of a set of resources.
func keyOf(resources []Resource) string {
	parts := make([]string, 0, len(resources)*8)
	for _, r := range resources {
		parts = append(parts, r.Group, r.GroupResource.Resource, r.Export.Cluster.String(), r.Export.Name, r.Identity, r.Schema, string(r.SchemaUID), fmt.Sprint(r.Virtual))
	}
	key, _ := json.Marshal(parts) // strings always encode
	return string(key)
}

func compareResources(a, b schema.GroupResource) int {
	return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
}
