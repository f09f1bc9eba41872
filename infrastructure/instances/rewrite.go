package instances

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
)

const (
	// rewriteRate is how many instances are written a second that are stored in an old version.
	rewriteRate = 20
	// rewriteAttempts is how often an instance is written that others write at the same time, before it is left to the next turn.
	rewriteAttempts = 5
)

// Rewrite implements template.Instances.
func (v *View) Rewrite(ctx context.Context, t *infrastructurev1alpha1.Template, rewritten sets.Set[types.UID]) error {
	limiter := flowcontrol.NewTokenBucketRateLimiter(rewriteRate, rewriteRate)
	return v.writeEach(ctx, t, func(ctx context.Context, c dynamic.ResourceInterface, object *unstructured.Unstructured) error {
		if rewritten.Has(object.GetUID()) {
			return nil
		}
		if limiter.Wait(ctx) != nil { // the context ends before its turn
			<-ctx.Done()
			return ctx.Err()
		}
		err := rewrite(ctx, c, object, t)
		if err == nil {
			rewritten.Insert(object.GetUID())
		}
		return err
	})
}

// rewrite writes an instance. One that is written at the same time is read again: it is stored in the new version then, but may be owned in a
// retired one.
func rewrite(ctx context.Context, c dynamic.ResourceInterface, object *unstructured.Unstructured, t *infrastructurev1alpha1.Template) error {
	names, uid := t.Spec.InstanceCRD, object.GetUID()
	for attempt := 1; ; attempt++ {
		owners, err := ownedIn(object.GetManagedFields(), names.Group, names.Version, t.Spec.RetiredVersions)
		if err != nil {
			return fmt.Errorf("reading the owners of the fields of %s: %w", object.GetName(), err)
		}
		object.SetManagedFields(owners)
		_, err = c.Update(ctx, object, metav1.UpdateOptions{})
		if !apierrors.IsConflict(err) {
			return err
		}
		if attempt == rewriteAttempts {
			return apierrors.NewServerTimeout(schema.GroupResource{Group: names.Group, Resource: names.Resource}, "update", 1) // a conflict would count as written
		}
		if object, err = c.Get(ctx, object.GetName(), metav1.GetOptions{}); err != nil {
			return err
		}
		if object.GetUID() != uid {
			return nil // another one, which is made in the new version
		}
	}
}

// ownedIn returns the owners of fields with a version for those that are retired: a server converts an object to the version of each owner
// when it is applied, and fails if there is no such version. Versions differ only in what they validate, so paths stay. Who owned fields in
// both versions owns them together, as one manager is one entry.
func ownedIn(owners []metav1.ManagedFieldsEntry, group, version string, retired []string) ([]metav1.ManagedFieldsEntry, error) {
	var moved []metav1.ManagedFieldsEntry
	current := schema.GroupVersion{Group: group, Version: version}.String()
	for _, owner := range owners {
		if parsed, err := schema.ParseGroupVersion(owner.APIVersion); err == nil && parsed.Group == group && slices.Contains(retired, parsed.Version) {
			owner.APIVersion = current
		}
		at := slices.IndexFunc(moved, func(other metav1.ManagedFieldsEntry) bool {
			return other.Manager == owner.Manager && other.Operation == owner.Operation && other.Subresource == owner.Subresource && other.APIVersion == owner.APIVersion
		})
		if at < 0 || owner.APIVersion != current {
			moved = append(moved, owner)
			continue
		}
		union, err := unionOf(moved[at].FieldsV1, owner.FieldsV1)
		if err != nil {
			return nil, err
		}
		moved[at].FieldsV1 = union
		if moved[at].Time.Before(owner.Time) {
			moved[at].Time = owner.Time
		}
	}
	return moved, nil
}

func unionOf(a, b *metav1.FieldsV1) (*metav1.FieldsV1, error) {
	union := &fieldpath.Set{}
	for _, fields := range []*metav1.FieldsV1{a, b} {
		if fields == nil {
			continue
		}
		set := &fieldpath.Set{}
		if err := set.FromJSON(fields.GetRawReader()); err != nil {
			return nil, err
		}
		union = union.Union(set)
	}
	raw, err := union.ToJSON()
	if err != nil {
		return nil, err
	}
	return metav1.NewFieldsV1(string(raw)), nil
}
