package stub

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/atoll-dev/atoll/infrastructure/instance"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// Runtime stores the instances of stubs in a map, which outlives the backends that use it.
type Runtime struct {
	changed chan instance.Identity

	mu       sync.Mutex
	provided map[key]map[string]any // the specs of instances
	writes   int
}

// key identifies an instance.
type key struct {
	tenant             logicalcluster.Name
	template, instance string
}

// NewRuntime returns an empty runtime.
func NewRuntime() *Runtime {
	return &Runtime{changed: make(chan instance.Identity), provided: map[key]map[string]any{}}
}

// apply stores the spec of an instance.
func (r *Runtime) apply(k key, spec map[string]any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if found, ok := r.provided[k]; ok && fmt.Sprint(found) == fmt.Sprint(spec) {
		return
	}
	r.provided[k] = maps.Clone(spec)
	r.writes++
}

func (r *Runtime) delete(gone func(key) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.provided, func(k key, _ map[string]any) bool { return gone(k) })
}

func (r *Runtime) instances() []instance.Identity {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []instance.Identity
	for k := range r.provided {
		found = append(found, instance.Identity{Cluster: k.tenant, Template: k.template, Name: k.instance})
	}
	return found
}

func (r *Runtime) tenants() []logicalcluster.Name {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := map[logicalcluster.Name]bool{}
	for k := range r.provided {
		found[k.tenant] = true
	}
	return slices.Collect(maps.Keys(found))
}

// List returns the names of the stored instances of a tenant, sorted.
func (r *Runtime) List(tenant logicalcluster.Name) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for k := range r.provided {
		if k.tenant == tenant {
			names = append(names, k.template+"/"+k.instance)
		}
	}
	slices.Sort(names)
	return names
}

// Get returns the stored spec of an instance, or nil if there is none.
func (r *Runtime) Get(tenant logicalcluster.Name, inst string) map[string]any {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, spec := range r.provided {
		if k.tenant == tenant && k.instance == inst {
			return maps.Clone(spec)
		}
	}
	return nil
}

// Change changes a field of a stored instance, as another client could, and reports the change to the running backend.
func (r *Runtime) Change(ctx context.Context, tenant logicalcluster.Name, inst, field string, value any) error {
	changed, found := r.change(tenant, inst, field, value)
	if !found {
		return fmt.Errorf("there is no instance %s of %s", inst, tenant)
	}
	select {
	case r.changed <- changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *Runtime) change(tenant logicalcluster.Name, inst, field string, value any) (instance.Identity, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, spec := range r.provided {
		if k.tenant == tenant && k.instance == inst {
			spec[field] = value
			return instance.Identity{Cluster: tenant, Template: k.template, Name: inst}, true
		}
	}
	return instance.Identity{}, false
}

// Writes returns how often backends have created or changed an instance.
func (r *Runtime) Writes() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.writes
}
