package runtimecluster

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// Application applies the objects of a set in as many steps as a backend needs: what one step applies may determine what the next step
// applies. It is for one reconciliation, and not safe for concurrent use.
type Application struct {
	cluster   *Cluster
	set       Set
	namespace types.UID
	inventory *inventory
	applied   []member
}

// Begin prepares the application of a set: it ensures that the tenant has a namespace, and that the namespace and the inventory of the
// set belong to this provider.
func (c *Cluster) Begin(ctx context.Context, s Set) (*Application, error) {
	namespace, err := c.ensureNamespace(ctx, s.Tenant)
	if err != nil {
		return nil, err
	}
	current, err := c.readInventory(ctx, s)
	if err != nil {
		return nil, err
	}
	if current.configMap != nil {
		if err := c.adopt(ctx, "inventory", current.configMap); err != nil {
			return nil, err
		}
	}
	return &Application{cluster: c, set: s, namespace: namespace, inventory: current}, nil
}

// NamespaceUID returns the UID of the tenant's namespace in the runtime cluster. Tenants do not know it.
func (a *Application) NamespaceUID() types.UID { return a.namespace }

// Apply applies objects in the namespace of the tenant, and returns their current state, in the same order. It does not write objects that
// do not differ. Previous objects of the set stay until Prune. Apply writes nothing if the kind of an object does not exist, or if one of
// the objects is invalid.
func (a *Application) Apply(ctx context.Context, objects []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	wanted := slices.Clone(a.applied)
	for _, object := range objects {
		if err := a.cluster.validate(object); err != nil {
			return nil, err
		}
		if err := a.cluster.Check(object.GroupVersionKind()); err != nil {
			return nil, err
		}
		m := memberOf(object)
		if slices.ContainsFunc(wanted, m.isSame) { // each would overwrite the other at every reconciliation
			return nil, &InvalidError{fmt.Errorf("two objects of the instance are %s %s", m.Kind, m.Name)}
		}
		wanted = append(wanted, m)
	}
	a.applied = wanted
	if !a.isRecorded() {
		if err := a.cluster.writeInventory(ctx, a.set, a.inventory, append(slices.Clone(a.applied), a.previous()...)); err != nil {
			return nil, err
		}
	}
	current := make([]*unstructured.Unstructured, len(objects))
	for i, object := range objects {
		var err error
		if current[i], err = a.cluster.apply(ctx, a.set, object); err != nil {
			return nil, err
		}
	}
	return current, nil
}

// Prune deletes the previous objects of the set that were not applied, in reverse order. The inventory retains those that still exist.
func (a *Application) Prune(ctx context.Context) error {
	var left []member
	for _, m := range slices.Backward(a.previous()) {
		gone, err := a.cluster.delete(ctx, a.set, m)
		if err != nil {
			return err
		}
		if !gone {
			left = append(left, m)
		}
	}
	slices.Reverse(left)
	return a.cluster.writeInventory(ctx, a.set, a.inventory, append(slices.Clone(a.applied), left...))
}

// isRecorded reports whether the inventory contains everything that was applied, in that order. It may contain others in between: they do
// not require a write if the next step applies them.
func (a *Application) isRecorded() bool {
	rest := a.inventory.members
	for _, m := range a.applied {
		at := slices.Index(rest, m)
		if at < 0 {
			return false
		}
		rest = rest[at+1:]
	}
	return a.inventory.configMap != nil
}

// previous returns the objects in the inventory that were not applied.
func (a *Application) previous() []member {
	return slices.DeleteFunc(slices.Clone(a.inventory.members), func(m member) bool { return slices.ContainsFunc(a.applied, m.isSame) })
}

// Apply applies the objects of a set, deletes its previous objects that are not among them, and returns the current objects in the same
// order.
func (c *Cluster) Apply(ctx context.Context, s Set, objects []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	a, err := c.Begin(ctx, s)
	if err != nil {
		return nil, err
	}
	applied, err := a.Apply(ctx, objects)
	if err != nil {
		return nil, err
	}
	return applied, a.Prune(ctx)
}
