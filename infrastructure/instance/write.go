package instance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/log"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/internal/fieldowners"
	"github.com/atoll-dev/atoll/logicalcluster"
)

const (
	// maxFailures is the number of consecutive failures in a workspace after which its other instances are left to the next attempt, so
	// that a workspace that refuses everything costs little time.
	maxFailures = 3
	// maxLogged bounds the failures that an attempt logs.
	maxLogged = 10
)

// writeEach calls write for each instance of a Template. A failure in one workspace, such as one that has reached a limit, does not stop
// the writes in others. An instance that is gone, or that another client has changed concurrently, is not a failure.
func (v *View) writeEach(ctx context.Context, t *infrastructurev1alpha1.Template, write func(context.Context, dynamic.ResourceInterface, *unstructured.Unstructured) error) error {
	gvr, failed := gvrOf(t), &failures{}
	err := v.each(ctx, exportsOf(t, v.Export), gvr, func(c dynamic.Interface, object *unstructured.Unstructured) error {
		cluster := logicalcluster.Of(object)
		if !failed.isDue(cluster) {
			return nil
		}
		err := write(logicalcluster.With(ctx, cluster), c.Resource(gvr), object)
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			err = nil
		}
		if err != nil && ctx.Err() != nil {
			return ctx.Err()
		}
		failed.note(ctx, object, err)
		return nil
	})
	return errors.Join(err, failed.error())
}

// failures counts writes that failed. It needs only one number per reason, because instances are listed workspace by workspace.
type failures struct {
	cluster logicalcluster.Name // of the last instance
	inRow   int                 // consecutive failures there
	skipped int
	reasons map[string]int // by reason of API statuses, which are few
	logged  int
}

// isDue reports whether to write an instance of a logical cluster, and counts it as skipped otherwise.
func (f *failures) isDue(cluster logicalcluster.Name) bool {
	if cluster != f.cluster {
		f.cluster, f.inRow = cluster, 0
	}
	if f.inRow < maxFailures {
		return true
	}
	f.skipped++
	return false
}

func (f *failures) note(ctx context.Context, object *unstructured.Unstructured, err error) {
	if err == nil {
		f.inRow = 0
		return
	}
	f.inRow++
	if f.reasons == nil {
		f.reasons = map[string]int{}
	}
	reason := apierrors.ReasonForError(err)
	if reason == metav1.StatusReasonUnknown {
		reason = "no answer"
	}
	f.reasons[string(reason)]++
	if f.logged < maxLogged {
		f.logged++
		log.FromContext(ctx).Info("Failed to write an instance", "cluster", f.cluster, "name", object.GetName(), "err", err)
	}
}

// error returns nil if there is no failure. The message is part of conditions, so it names neither workspaces nor instances, and is the
// same for the same failures.
func (f *failures) error() error {
	if len(f.reasons) == 0 {
		return nil
	}
	total, texts := f.skipped, []string{}
	for _, reason := range slices.Sorted(maps.Keys(f.reasons)) {
		total += f.reasons[reason]
		texts = append(texts, fmt.Sprintf("%s: %d", reason, f.reasons[reason]))
	}
	if f.skipped > 0 {
		texts = append(texts, fmt.Sprintf("not tried after others of their workspaces: %d", f.skipped))
	}
	return fmt.Errorf("%d instances could not be written (%s); the log of the provider names them", total, strings.Join(texts, ", "))
}

const (
	// rewriteRate is how many instances per second are rewritten from a retired version.
	rewriteRate = 20
	// rewriteAttempts is how often Rewrite tries to write an instance that others write concurrently, before it leaves it to the next call.
	rewriteAttempts = 5
)

// Rewrite implements template.Instances.
func (v *View) Rewrite(ctx context.Context, t *infrastructurev1alpha1.Template, rewritten sets.Set[types.UID]) error {
	limiter := flowcontrol.NewTokenBucketRateLimiter(rewriteRate, rewriteRate)
	return v.writeEach(ctx, t, func(ctx context.Context, c dynamic.ResourceInterface, object *unstructured.Unstructured) error {
		if rewritten.Has(object.GetUID()) {
			return nil
		}
		if limiter.Wait(ctx) != nil { // the deadline would pass before the limiter permits the write
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

// rewrite writes an instance so that it is stored in the new version. After a conflict it reads the instance again: the concurrent write
// stored it in the new version, but its managed fields may still name a retired one.
func rewrite(ctx context.Context, c dynamic.ResourceInterface, object *unstructured.Unstructured, t *infrastructurev1alpha1.Template) error {
	names, uid := t.Spec.InstanceCRD, object.GetUID()
	for attempt := 1; ; attempt++ {
		owners, err := fieldowners.Move(object.GetManagedFields(), schema.GroupVersion{Group: names.Group, Version: names.Version}, func(version string) bool {
			return slices.Contains(t.Spec.RetiredVersions, version)
		})
		if err != nil {
			return fmt.Errorf("reading the owners of the fields of %s: %w", object.GetName(), err)
		}
		object.SetManagedFields(owners)
		_, err = c.Update(ctx, object, metav1.UpdateOptions{})
		if !apierrors.IsConflict(err) {
			return err
		}
		if attempt == rewriteAttempts {
			return apierrors.NewServerTimeout(schema.GroupResource{Group: names.Group, Resource: names.Resource}, "update", 1) // callers would count a conflict as written
		}
		if object, err = c.Get(ctx, object.GetName(), metav1.GetOptions{}); err != nil {
			return err
		}
		if object.GetUID() != uid {
			return nil // another instance of that name, created in the new version
		}
	}
}
