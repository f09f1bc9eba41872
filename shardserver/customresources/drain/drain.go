// Package drain deletes the objects of a resource in one logical cluster, below the API and in bounded passes: for
// definitions and bindings that may only go after what they brought.
package drain

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
	// deletesPerPass bounds what one turn of a worker deletes: the workers are shared by all tenants.
	deletesPerPass = 500
	// parallelDeletes is how many deletions of a pass run at once.
	parallelDeletes = 8
	// Objects that finalizers hold are looked for again after a part of the time that they were waited for already, between
	// these bounds.
	minWait, maxWait = 100 * time.Millisecond, 5 * time.Second
	waitPart         = 4
)

// ErrHeld is returned by a deleter for an object that cannot be deleted as long as it has finalizers, nor be marked as
// deleted. A pass goes on to others, and then fails with it.
var ErrHeld = errors.New("an object with finalizers cannot be read")

// Progress is what a pass has met.
type Progress struct {
	// Left counts the objects that were seen, of which there may be more.
	Left int
	// Deleted counts those whose deletion began with this pass, which says nothing of whether they are gone.
	Deleted int
	// Finalizers counts the finalizers of objects that are being deleted.
	Finalizers map[string]int
}

// Pass deletes a bounded number of the objects of the context's logical cluster.
func Pass(ctx context.Context, lister rest.Lister, deleter rest.GracefulDeleter) (Progress, error) {
	progress := Progress{Finalizers: map[string]int{}}
	options := &internalversion.ListOptions{Limit: deletesPerPass}
	var held error
	for {
		page, err := lister.List(ctx, options)
		if err != nil {
			return progress, fmt.Errorf("listing: %w", err)
		}
		progress.Left += meta.LenList(page)
		err = progress.deletePage(ctx, deleter, page)
		if errors.Is(err, ErrHeld) {
			held, err = err, nil
		}
		list, listErr := meta.ListAccessor(page)
		if err != nil || listErr != nil || list.GetContinue() == "" || progress.Deleted >= deletesPerPass {
			return progress, firstOf(err, listErr, held)
		}
		options.Continue = list.GetContinue()
	}
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// deletePage deletes those objects of a page that are not being deleted. One goes first, so that one request learns if
// none can be converted; after a failure the rest is left to the next pass.
func (p *Progress) deletePage(ctx context.Context, deleter rest.GracefulDeleter, page runtime.Object) error {
	var deletes errgroup.Group
	deletes.SetLimit(parallelDeletes)
	var failed atomic.Bool
	var held atomic.Pointer[error]
	var heldCount atomic.Int64
	begun := 0
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
		begun++
		namespace, name, uid := object.GetNamespace(), object.GetName(), object.GetUID()
		deletes.Go(func() error {
			if failed.Load() {
				return nil
			}
			options := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
			_, _, err := deleter.Delete(request.WithNamespace(ctx, namespace), name, rest.ValidateAllObjectFunc, options)
			if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // gone, or another one by now: the next pass sees it
				return nil
			}
			if errors.Is(err, ErrHeld) {
				held.Store(&err)
				heldCount.Add(1)
				return nil
			}
			if err != nil {
				failed.Store(true)
			}
			return err
		})
		if begun == 1 {
			_ = deletes.Wait() // its error stays with the group
		}
		return nil
	})
	failure := firstOf(deletes.Wait(), err)
	p.Deleted += begun - int(heldCount.Load())
	if of := held.Load(); failure == nil && of != nil {
		return *of
	}
	return failure
}

// Wait returns when to look again at what is left. As long as deletions get somewhere, the next pass follows at once.
func Wait(deleted int, since time.Duration) time.Duration {
	if deleted > 0 {
		return time.Millisecond
	}
	return min(max(since/waitPart, minWait), maxWait)
}

// Gate lets a few passes of each logical cluster in at a time. Deletions may have to ask a conversion webhook of the
// tenant, and one that hangs is waited for: it must not hold the workers of all.
type Gate struct {
	// AtOnce is how many.
	AtOnce int

	mu sync.Mutex
	// busy counts the passes under way of each logical cluster that has any.
	busy map[logicalcluster.Name]int
}

// Enter takes one of the places of a logical cluster, if there is one. Leave gives it back.
func (g *Gate) Enter(cluster logicalcluster.Name) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.busy[cluster] >= g.AtOnce {
		return false
	}
	if g.busy == nil {
		g.busy = map[logicalcluster.Name]int{}
	}
	g.busy[cluster]++
	return true
}

// Leave gives a place back.
func (g *Gate) Leave(cluster logicalcluster.Name) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.busy[cluster]--; g.busy[cluster] == 0 {
		delete(g.busy, cluster)
	}
}
