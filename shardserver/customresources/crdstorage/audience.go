package crdstorage

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/utils/ptr"

	"github.com/atoll-dev/atoll/logicalcluster"
	clusterstorage "github.com/atoll-dev/atoll/shardserver/storage"
)

// maxProjectedObjects bounds the objects of one list, which are as many as the objects that are read times the logical
// clusters in which they appear.
const maxProjectedObjects = 50_000

// Audience is a set of logical clusters in which the same objects appear. It changes with objects of the same etcd, so that
// resource versions order its changes and those of the objects.
type Audience interface {
	// List returns the logical clusters, not older than the call.
	List(ctx context.Context) ([]logicalcluster.Name, error)
	// Version returns the resource version of the last change of the set that this server has observed, or of a later
	// one, and a channel that is closed with the next.
	Version() (version uint64, changed <-chan struct{})
}

// limitList reduces the limit of a list, so that objects that appear in several logical clusters do not exceed it.
func (p *Projection) limitList(ctx context.Context, opts storage.ListOptions) (storage.ListOptions, error) {
	if p == nil || p.Audience == nil || opts.Predicate.Limit <= 0 {
		return opts, nil
	}
	clusters, err := p.Audience.List(ctx)
	if err == nil && len(clusters) > 0 {
		opts.Predicate.Limit = max(1, opts.Predicate.Limit/int64(len(clusters)))
	}
	return opts, err
}

// projectListToAudience replaces the objects of a list by those that the audience sees. The audience is read after the
// objects, so that a watch from the resource version of the list misses no consumer that joined before.
func (p *Projection) projectListToAudience(ctx context.Context, list *List) error {
	clusters, err := p.Audience.List(ctx)
	if err != nil {
		return err
	}
	if count := len(list.Items) * len(clusters); count > maxProjectedObjects {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the list has %d objects; request at most %d with the parameter limit", count, maxProjectedObjects))
	}
	all := make([]Object, 0, len(list.Items)*len(clusters))
	for i := range list.Items {
		for _, cluster := range clusters {
			projected, err := p.project(&list.Items[i], cluster)
			if err != nil {
				return err
			}
			all = append(all, *projected)
		}
	}
	list.Items = all
	if list.RemainingItemCount != nil {
		list.RemainingItemCount = ptr.To(*list.RemainingItemCount * int64(len(clusters)))
	}
	return nil
}

// projectWatchToAudience returns a watch with each event once for each logical cluster of the audience. It expires when the
// audience changes: clients have to list the objects again, as they also do when they resume a watch from before the
// change.
func (p *Projection) projectWatchToAudience(ctx context.Context, stream watch.Interface, opts storage.ListOptions) (watch.Interface, error) {
	since, _ := p.Audience.Version()
	if resumed, err := clusterstorage.ParseRevision(opts.ResourceVersion); err == nil && resumed > 0 && !ptr.Deref(opts.SendInitialEvents, false) {
		since = resumed
	}
	clusters, err := p.Audience.List(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &audienceWatch{projection: p, stream: stream, clusters: clusters, since: since, ctx: ctx, cancel: cancel, events: make(chan watch.Event)}
	go w.run()
	return w, nil
}

// audienceWatch is the watch of projectWatchToAudience.
type audienceWatch struct {
	projection *Projection
	stream     watch.Interface
	clusters   []logicalcluster.Name
	since      uint64
	ctx        context.Context
	cancel     context.CancelFunc
	events     chan watch.Event
}

// Stop implements watch.Interface.
func (w *audienceWatch) Stop() { w.cancel() }

// ResultChan implements watch.Interface.
func (w *audienceWatch) ResultChan() <-chan watch.Event { return w.events }

func (w *audienceWatch) run() {
	defer close(w.events)
	defer w.cancel()
	defer w.stream.Stop()
	for {
		version, changed := w.projection.Audience.Version()
		if version > w.since {
			w.send(watch.Event{Type: watch.Error, Object: newErrorStatus(apierrors.NewResourceExpired("the logical clusters that share the objects have changed: list them again"))})
			return
		}
		select {
		case <-w.ctx.Done():
			return
		case <-changed:
		case event, ok := <-w.stream.ResultChan():
			if !ok || !w.sendAll(event) {
				return
			}
		}
	}
}

// sendAll sends the projections of an event. It returns false at the end of the watch.
func (w *audienceWatch) sendAll(event watch.Event) bool {
	if obj, ok := objectOf(event); !ok || isBookmark(obj) {
		return w.send(event)
	}
	for _, cluster := range w.clusters {
		if !w.send(w.projection.projectEvent(event, cluster)) {
			return false
		}
	}
	return true
}

func (w *audienceWatch) send(event watch.Event) bool {
	select {
	case w.events <- event:
		return true
	case <-w.ctx.Done():
		return false
	}
}
