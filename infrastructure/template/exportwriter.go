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

// exportTimeout bounds one write of an export, which several Templates wait for.
const exportTimeout = 30 * time.Second

// exportWriter writes exports one after another. The changes that come during a write are the next one: every binding and every shard
// looks at each write of an export, and Templates that are published together would be in conflict.
type exportWriter struct {
	writing sync.Mutex

	mu      sync.Mutex
	waiting map[string]*exportBatch // by export
}

// exportBatch is changes that are written together.
type exportBatch struct {
	changes []entryChange
	written chan struct{}
	errs    []error // of the changes, once they are written
}

// join adds a change to those of an export that wait, and reports whether it is the first of them: who joins first has to write them.
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

// take returns the changes of an export that wait. No others join them.
func (w *exportWriter) take(export string) []entryChange {
	w.mu.Lock()
	defer w.mu.Unlock()
	changes := w.waiting[export].changes
	delete(w.waiting, export)
	return changes
}

// change changes an export together with what others change at the same time.
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

// write writes a batch once the write before it has ended. Where that fails, each change is written alone: one that the server refuses
// stops no other.
func (w *exportWriter) write(ctx context.Context, export string, batch *exportBatch, write func(context.Context, []entryChange) error) {
	w.writing.Lock()
	defer w.writing.Unlock()
	changes := w.take(export)
	batch.errs = make([]error, len(changes))
	defer close(batch.written)
	// Others wait for it, too: it does not end with the pass that writes.
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

// changeExport changes an export, and writes it if that changed something.
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
