package garbage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// parallelOrphans is how many dependents of one owner are orphaned concurrently.
const parallelOrphans = 8

// collect deletes an object without existing owners, and removes references to absent owners from an object that has
// another owner.
func (c *Collector) collect(ctx context.Context, n nodeSnapshot) error {
	refs, err := c.classify(ctx, n, n.owners)
	if len(refs.absent) > 0 || errors.Is(err, errOwnerScope) || errors.Is(err, errUnknownKind) {
		c.searchOwners(n.node)
	}
	switch {
	case errors.Is(err, errOwnerScope):
		return nil // it stays unchanged, as upstream
	case err != nil:
		return err
	case len(refs.absent) == 0 && len(refs.waiting) == 0:
		return nil
	}
	// The decision to delete is based on the object in storage.
	object, err := c.getLatest(ctx, n)
	if object == nil || err != nil {
		return err
	}
	if len(object.GetOwnerReferences()) == 0 || object.GetDeletionTimestamp() != nil {
		return nil
	}
	if refs, err = c.classify(ctx, n, object.GetOwnerReferences()); err != nil {
		return err
	}
	switch {
	case len(refs.existing) > 0:
		return c.setOwnerReferences(ctx, n, object, refs.existing)
	case len(refs.waiting) > 0 && n.dependents:
		return c.deleteWithDependents(ctx, n, object)
	}
	return c.delete(ctx, n, object, propagationPolicy(object))
}

// searchOwners has the owners of an object searched in other namespaces.
func (c *Collector) searchOwners(n node) {
	for _, owner := range n.owners {
		if !c.isDeleted(key{n.cluster, owner.UID}) {
			c.owners.add(n, owner)
		}
	}
}

// getLatest reads an object from storage. It returns nil if it is gone.
func (c *Collector) getLatest(ctx context.Context, n nodeSnapshot) (metav1.Object, error) {
	object, err := read(ctx, n.resource, n.namespace, n.name, latest)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading %s %q: %w", n.resource.GVR.GroupResource(), n.name, err)
	case object.GetUID() != n.uid:
		return nil, nil
	}
	return object, nil
}

// deleteWithDependents deletes an object whose owner waits for it and which has dependents itself: these are deleted
// first. In a cycle of such objects none could be deleted; its references are therefore made non-blocking.
func (c *Collector) deleteWithDependents(ctx context.Context, n nodeSnapshot, object metav1.Object) error {
	if n.circular {
		unblocked := slices.Clone(object.GetOwnerReferences())
		for i := range unblocked {
			unblocked[i].BlockOwnerDeletion = nil
		}
		changed, err := c.patchOwners(ctx, n.node, object, unblocked)
		if err != nil {
			return client.IgnoreNotFound(err)
		}
		object = changed
	}
	return c.delete(ctx, n, object, metav1.DeletePropagationForeground)
}

// propagationPolicy honours the finalizers that an object already has.
func propagationPolicy(object metav1.Object) metav1.DeletionPropagation {
	switch finalizers := object.GetFinalizers(); {
	case slices.Contains(finalizers, metav1.FinalizerOrphanDependents):
		return metav1.DeletePropagationOrphan
	case slices.Contains(finalizers, metav1.FinalizerDeleteDependents):
		return metav1.DeletePropagationForeground
	}
	return metav1.DeletePropagationBackground
}

// delete deletes an object with the UID and the resource version that were read.
func (c *Collector) delete(ctx context.Context, n nodeSnapshot, object metav1.Object, policy metav1.DeletionPropagation) error {
	resource, err := c.servedResource(ctx, n.node)
	if err != nil {
		return err
	}
	uid, version := object.GetUID(), object.GetResourceVersion()
	err = c.cfg.Metadata.Resource(resource).Namespace(n.namespace).Delete(ctx, n.name, metav1.DeleteOptions{
		PropagationPolicy: &policy,
		Preconditions:     &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
	})
	if err := client.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("deleting %s %q: %w", resource.GroupResource(), n.name, err)
	}
	return nil
}

// deleteForeground removes the finalizer once no dependent blocks the deletion. Until then it has the dependents
// deleted.
func (c *Collector) deleteForeground(ctx context.Context, n nodeSnapshot) (time.Duration, error) {
	if !c.synced() {
		return syncDelay, nil
	}
	blocking := c.blockingDependents(n.key)
	for _, dependent := range blocking {
		if dependent.waitReason != waitDependents {
			c.controller.Add(dependent.key)
		}
	}
	if len(blocking) > 0 {
		return 0, nil
	}
	return 0, c.removeFinalizer(ctx, n, metav1.FinalizerDeleteDependents)
}

// orphanDependents removes an object from the owners of its dependents, and then removes its finalizer. Events of
// dependents that were created just before the deletion may arrive after it, since every resource has its own watch;
// hence the delay.
func (c *Collector) orphanDependents(ctx context.Context, n nodeSnapshot) (time.Duration, error) {
	object, err := c.getLatest(ctx, n)
	if object == nil || err != nil {
		return 0, err
	}
	if waitReasonOf(object) != waitOrphaning {
		return 0, nil
	}
	if left := time.Until(n.waitingSince.Add(orphanDelay)); left > 0 {
		return left, nil
	}
	if !c.synced() {
		return syncDelay, nil
	}
	var patches errgroup.Group
	patches.SetLimit(parallelOrphans)
	for _, dependent := range c.allDependents(n.key) {
		patches.Go(func() error { return c.removeOwner(ctx, dependent, n.key) })
	}
	if err := patches.Wait(); err != nil {
		return 0, fmt.Errorf("orphaning the dependents of %s %q: %w", n.resource.GVR.GroupResource(), n.name, err)
	}
	return 0, c.removeFinalizer(ctx, n, metav1.FinalizerOrphanDependents)
}

// removeOwner removes an owner from a dependent.
func (c *Collector) removeOwner(ctx context.Context, dependent node, owner key) error {
	object, err := c.getLatest(ctx, nodeSnapshot{node: dependent})
	if object == nil || err != nil {
		return err
	}
	return c.setOwnerReferences(ctx, nodeSnapshot{node: dependent}, object, slices.DeleteFunc(slices.Clone(object.GetOwnerReferences()),
		func(reference metav1.OwnerReference) bool { return reference.UID == owner.uid }))
}
