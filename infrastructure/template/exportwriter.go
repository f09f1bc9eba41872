package template

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
)

// exportTimeout bounds one write of an export, for which several Templates wait.
const exportTimeout = 30 * time.Second

// exportWriter serializes writes of exports. It collects the changes that arrive during a write into the next one: every binding and every
// shard processes each write of an export, and Templates that are published concurrently would conflict.
type exportWriter struct {
	writing sync.Mutex

	mu      sync.Mutex
	waiting map[string]*exportBatch // by export
}

// exportBatch contains changes that are written together.
type exportBatch struct {
	changes []entryChange
	written chan struct{}
	errs    []error // one for each change; valid after written is closed
}

// join adds a change to the pending batch of an export. It reports whether the change is the first, whose caller must write the batch.
func (w *exportWriter) join(export string, change entryChange) (batch *exportBatch, index int, isFirst bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting == nil {
		w.waiting = map[string]*exportBatch{}
	}
	if batch = w.waiting[export]; batch == nil {
		batch, isFirst = &exportBatch{written: make(chan struct{})}, true
		w.waiting[export] = batch
	}
	batch.changes = append(batch.changes, change)
	return batch, len(batch.changes) - 1, isFirst
}

// take returns the pending changes of an export, and closes the batch to others.
func (w *exportWriter) take(export string) []entryChange {
	w.mu.Lock()
	defer w.mu.Unlock()
	changes := w.waiting[export].changes
	delete(w.waiting, export)
	return changes
}

// change applies a change to an export, in one write with concurrent changes of others.
func (w *exportWriter) change(ctx context.Context, export string, change entryChange, write func(context.Context, []entryChange) error) error {
	batch, index, isFirst := w.join(export, change)
	if isFirst {
		w.write(ctx, export, batch, write)
		return batch.errs[index]
	}
	select {
	case <-batch.written:
		return batch.errs[index]
	case <-ctx.Done():
		return ctx.Err()
	}
}

// write writes a batch after the previous write has ended. If that fails, it writes each change alone, so that one change that the server
// refuses does not block the others.
func (w *exportWriter) write(ctx context.Context, export string, batch *exportBatch, write func(context.Context, []entryChange) error) {
	w.writing.Lock()
	defer w.writing.Unlock()
	changes := w.take(export)
	batch.errs = make([]error, len(changes))
	defer close(batch.written)
	// Others wait for this write, too, so it must not end with the context of the first caller.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), exportTimeout)
	defer cancel()
	err := write(ctx, changes)
	for i := range changes {
		batch.errs[i] = err
		if err != nil && len(changes) > 1 && !apierrors.IsNotFound(err) {
			batch.errs[i] = write(ctx, changes[i:i+1])
		}
	}
}

// changeExport applies a change to an export, and writes the export if it changed.
func (r *Reconciler) changeExport(ctx context.Context, name string, change entryChange) error {
	return r.exports.change(ctx, name, change, func(ctx context.Context, changes []entryChange) error {
		return retry.RetryOnConflict(retry.DefaultBackoff, func() error { return r.writeExport(ctx, name, changes) })
	})
}

func (r *Reconciler) writeExport(ctx context.Context, name string, changes []entryChange) error {
	export := &apisv1alpha2.APIExport{}
	if err := r.Live.Get(ctx, types.NamespacedName{Name: name}, export); err != nil {
		return fmt.Errorf("reading APIExport %s: %w", name, err)
	}
	changed := false
	for _, change := range changes {
		changed = change(&export.Spec.Resources) || changed
	}
	if !changed {
		return nil
	}
	if err := r.Client.Update(ctx, export); err != nil {
		return fmt.Errorf("updating APIExport %s: %w", name, err)
	}
	return nil
}
