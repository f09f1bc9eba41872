// Package purge deletes the objects of a resource in one logical cluster, below the API and in bounded batches, before
// the definition or the binding of the resource is deleted.
package purge

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/atoll-dev/atoll/logicalcluster"
)

const (
	// batchSize bounds the deletions of one reconciliation: all tenants share the workers.
	batchSize = 500
	// parallelDeletes bounds the concurrent deletions of a batch.
	parallelDeletes = 8
	// Objects with finalizers are listed again after a fraction of the time since the deletion began, between these bounds.
	minWait, maxWait = 100 * time.Millisecond, 5 * time.Second
	waitFraction     = 4
)

// ErrHasFinalizers is returned by a deleter for an object that has finalizers and cannot be decoded, so that it can neither
// be deleted nor get a deletion timestamp. DeleteBatch continues with other objects, and then fails with it.
var ErrHasFinalizers = errors.New("an object with finalizers cannot be read")

// Progress counts the objects of a batch.
type Progress struct {
	// Remaining counts the listed objects. There may be more.
	Remaining int
	// Deleted counts the objects whose deletion began with this batch. Finalizers may delay it.
	Deleted int
	// Finalizers counts the finalizers of objects that are being deleted.
	Finalizers map[string]int
}

// DeleteBatch deletes a bounded number of the objects of the context's logical cluster.
func DeleteBatch(ctx context.Context, lister rest.Lister, deleter rest.GracefulDeleter) (Progress, error) {
	progress := Progress{Finalizers: map[string]int{}}
	options := &internalversion.ListOptions{Limit: batchSize}
	var finalizersErr error
	for {
		page, err := lister.List(ctx, options)
		if err != nil {
			return progress, fmt.Errorf("listing: %w", err)
		}
		progress.Remaining += meta.LenList(page)
		err = progress.deletePage(ctx, deleter, page)
		if errors.Is(err, ErrHasFinalizers) {
			finalizersErr, err = err, nil
		}
		list, listErr := meta.ListAccessor(page)
		if err != nil || listErr != nil || list.GetContinue() == "" || progress.Deleted >= batchSize {
			return progress, firstError(err, listErr, finalizersErr)
		}
		options.Continue = list.GetContinue()
	}
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// deletePage deletes those objects of a page that have no deletion timestamp. The first one is deleted alone, so that only
// one request fails if no object can be converted; after a failure the next batch deletes the rest.
func (p *Progress) deletePage(ctx context.Context, deleter rest.GracefulDeleter, page runtime.Object) error {
	var deletes errgroup.Group
	deletes.SetLimit(parallelDeletes)
	var failed atomic.Bool
	var finalizersErr atomic.Pointer[error]
	var withFinalizers atomic.Int64
	started := 0
	err := meta.EachListItem(page, func(obj runtime.Object) error {
		object, err := meta.Accessor(obj)
		if err != nil {
			return err
		}
		if object.GetDeletionTimestamp() != nil {
			for _, finalizer := range object.GetFinalizers() {
				p.Finalizers[finalizer]++
			}
			return nil
		}
		started++
		namespace, name, uid := object.GetNamespace(), object.GetName(), object.GetUID()
		deletes.Go(func() error {
			if failed.Load() {
				return nil
			}
			options := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
			_, _, err := deleter.Delete(request.WithNamespace(ctx, namespace), name, rest.ValidateAllObjectFunc, options)
			if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // deleted, or created again: the next batch lists it
				return nil
			}
			if errors.Is(err, ErrHasFinalizers) {
				finalizersErr.Store(&err)
				withFinalizers.Add(1)
				return nil
			}
			if err != nil {
				failed.Store(true)
			}
			return err
		})
		if started == 1 {
			_ = deletes.Wait() // the last Wait returns the error
		}
		return nil
	})
	failure := firstError(deletes.Wait(), err)
	p.Deleted += started - int(withFinalizers.Load())
	if kept := finalizersErr.Load(); failure == nil && kept != nil {
		return *kept
	}
	return failure
}

// RequeueAfter returns the delay before the next batch: none to speak of while batches delete objects.
func RequeueAfter(deleted int, since time.Duration) time.Duration {
	if deleted > 0 {
		return time.Millisecond
	}
	return min(max(since/waitFraction, minWait), maxWait)
}

// Limiter bounds the concurrent batches of each logical cluster. A deletion may call a conversion webhook of the tenant;
// one that does not respond must not block the workers that all tenants share.
type Limiter struct {
	// PerCluster is the bound.
	PerCluster int

	mu sync.Mutex
	// running counts the batches of each logical cluster that has any.
	running map[logicalcluster.Name]int
}

// TryAcquire returns whether a batch of a logical cluster may run. If so, callers must call Release after it.
func (l *Limiter) TryAcquire(cluster logicalcluster.Name) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running[cluster] >= l.PerCluster {
		return false
	}
	if l.running == nil {
		l.running = map[logicalcluster.Name]int{}
	}
	l.running[cluster]++
	return true
}

// Release ends a batch of a logical cluster.
func (l *Limiter) Release(cluster logicalcluster.Name) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running[cluster]--; l.running[cluster] == 0 {
		delete(l.running, cluster)
	}
}
