package instances

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
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/log"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

const (
	// maxFailures is the number of failures in a row after which the other instances of a workspace are left to the next attempt, so that
	// one workspace that refuses everything costs little time.
	maxFailures = 3
	// maxLogged bounds the failures of an attempt that are logged.
	maxLogged = 10
)

// writeEach calls a function that writes for each instance of a Template. What fails in one workspace, such as one that has reached a
// limit, does not keep the instances of others from being written. That an instance is gone, or is written by another client at the same
// time, is no failure.
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

// failures are what could not be written. It keeps no more than one number for each reason: instances are listed workspace by workspace.
type failures struct {
	cluster logicalcluster.Name // of the last instance
	inRow   int                 // failures there
	skipped int
	reasons map[string]int // reasons of statuses, which are few
	logged  int
}

// isDue reports whether an instance of a logical cluster is to be written, and counts it as failed otherwise.
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
		log.FromContext(ctx).Info("Could not write an instance", "cluster", f.cluster, "name", object.GetName(), "error", err.Error())
	}
}

// error returns nil if there is no failure. The text is part of conditions, so it names neither workspaces nor instances, and is the same
// for the same failures.
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
