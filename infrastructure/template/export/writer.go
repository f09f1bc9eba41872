package export

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
)

// writeTimeout bounds one write of an export, for which several Templates wait.
const writeTimeout = 30 * time.Second

// Writer serializes writes of exports. It collects the changes that arrive during a write into the next one: every binding and every
// shard processes each write of an export, and Templates that are published concurrently would conflict.
type Writer struct {
	writing sync.Mutex

	mu      sync.Mutex
	waiting map[string]*batch // by export
}

// batch contains changes that are written together.
type batch struct {
	changes []Change
	written chan struct{}
	errs    []error // one for each change; valid after written is closed
}

// join adds a change to the pending batch of an export. It reports whether the change is the first, whose caller must write the batch.
func (w *Writer) join(export string, change Change) (b *batch, index int, isFirst bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting == nil {
		w.waiting = map[string]*batch{}
	}
	if b = w.waiting[export]; b == nil {
		b, isFirst = &batch{written: make(chan struct{})}, true
		w.waiting[export] = b
	}
	b.changes = append(b.changes, change)
	return b, len(b.changes) - 1, isFirst
}

// take returns the pending changes of an export, and closes the batch to others.
func (w *Writer) take(export string) []Change {
	w.mu.Lock()
	defer w.mu.Unlock()
	changes := w.waiting[export].changes
	delete(w.waiting, export)
	return changes
}

// Change applies a change to an export, in one write with concurrent changes of others. It writes only if the export changes. live reads without
// a cache.
func (w *Writer) Change(ctx context.Context, c client.Client, live client.Reader, export string, change Change) error {
	b, index, isFirst := w.join(export, change)
	if isFirst {
		w.write(ctx, c, live, export, b)
		return b.errs[index]
	}
	select {
	case <-b.written:
		return b.errs[index]
	case <-ctx.Done():
		return ctx.Err()
	}
}

// write writes a batch after the previous write has ended. If that fails, it writes each change alone, so that one change that the server
// refuses does not block the others.
func (w *Writer) write(ctx context.Context, c client.Client, live client.Reader, export string, b *batch) {
	w.writing.Lock()
	defer w.writing.Unlock()
	changes := w.take(export)
	b.errs = make([]error, len(changes))
	defer close(b.written)
	// Others wait for this write, too, so it must not end with the context of the first caller.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	err := apply(ctx, c, live, export, changes)
	for i := range changes {
		b.errs[i] = err
		if err != nil && len(changes) > 1 && !apierrors.IsNotFound(err) {
			b.errs[i] = apply(ctx, c, live, export, changes[i:i+1])
		}
	}
}

// apply applies changes to an export, again after a conflict.
func apply(ctx context.Context, c client.Client, live client.Reader, name string, changes []Change) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error { return update(ctx, c, live, name, changes) })
}

func update(ctx context.Context, c client.Client, live client.Reader, name string, changes []Change) error {
	export := &apisv1alpha2.APIExport{}
	if err := live.Get(ctx, types.NamespacedName{Name: name}, export); err != nil {
		return fmt.Errorf("reading APIExport %s: %w", name, err)
	}
	changed := false
	for _, change := range changes {
		changed = change(&export.Spec.Resources) || changed
	}
	if !changed {
		return nil
	}
	if err := c.Update(ctx, export); err != nil {
		return fmt.Errorf("updating APIExport %s: %w", name, err)
	}
	return nil
}
