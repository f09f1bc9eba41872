package apiexport

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	endpointfilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/klog/v2"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/internal/background"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/informer"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// recheckInterval is the minimum time between two checks of all open watches.
const recheckInterval = 500 * time.Millisecond

// WatchTerminator tracks the open watches in virtual workspaces of exports, which are authorized when they start. It ends
// a watch when the consumer's binding no longer allows it, or when the offer of the export has changed. Its memory is
// bounded by the number of open watches.
type WatchTerminator struct {
	authorizer stepsAuthorizer
	bindings   *storage.Reader[*apisv1alpha2.APIBinding]
	// exportChanges has an element while a change of an export is pending.
	exportChanges chan struct{}
	// identityChanges has an element while a change of what claims without an identity are for is pending.
	identityChanges chan struct{}

	mu      sync.Mutex
	watches map[logicalcluster.Name]map[*openWatch]struct{}
}

// openWatch is an open watch request.
type openWatch struct {
	request    *resourceRequest
	attributes authorizer.Attributes
	// privileged callers (system:masters) do not depend on bindings.
	privileged bool
	cancel     context.CancelFunc
}

func newWatchTerminator(authorizer stepsAuthorizer, reader *storage.Reader[*apisv1alpha2.APIBinding]) *WatchTerminator {
	return &WatchTerminator{authorizer: authorizer, bindings: reader, exportChanges: make(chan struct{}, 1), identityChanges: make(chan struct{}, 1), watches: map[logicalcluster.Name]map[*openWatch]struct{}{}}
}

// Len returns the number of open watches.
func (wt *WatchTerminator) Len() int {
	wt.mu.Lock()
	defer wt.mu.Unlock()
	count := 0
	for _, watches := range wt.watches {
		count += len(watches)
	}
	return count
}

// track adds a watch request, or one whose connection stays open with another protocol. Other requests are returned unchanged. Callers must call done at the end of the request.
func (wt *WatchTerminator) track(req *http.Request, c *resourceRequest) (tracked *http.Request, done func()) {
	if upgrade := req.Header.Get("Upgrade") != "" && c.info.Subresource != ""; c.info.Verb != "watch" && !upgrade {
		return req, func() {}
	}
	attributes, err := endpointfilters.GetAuthorizerAttributes(req.Context())
	if err != nil {
		return req, func() {} // cannot happen: the request was authorized with them
	}
	ctx, cancel := context.WithCancel(req.Context())
	added := &openWatch{
		request: c, attributes: attributes, cancel: cancel,
		privileged: slices.Contains(attributes.GetUser().GetGroups(), user.SystemPrivilegedGroup),
	}
	wt.add(added)
	wt.recheck(ctx, added) // the binding or export may have changed since authorization
	return req.WithContext(ctx), func() { wt.remove(added); cancel() }
}

func (wt *WatchTerminator) add(w *openWatch) {
	wt.mu.Lock()
	defer wt.mu.Unlock()
	cluster := w.request.target.Cluster
	if wt.watches[cluster] == nil {
		wt.watches[cluster] = map[*openWatch]struct{}{}
	}
	wt.watches[cluster][w] = struct{}{}
}

func (wt *WatchTerminator) remove(w *openWatch) {
	wt.mu.Lock()
	defer wt.mu.Unlock()
	cluster := w.request.target.Cluster
	delete(wt.watches[cluster], w)
	if len(wt.watches[cluster]) == 0 {
		delete(wt.watches, cluster)
	}
}

// listWatches returns the watches on matching logical clusters.
func (wt *WatchTerminator) listWatches(matches func(logicalcluster.Name) bool) []*openWatch {
	wt.mu.Lock()
	defer wt.mu.Unlock()
	var found []*openWatch
	for cluster, watches := range wt.watches {
		if !matches(cluster) {
			continue
		}
		for w := range watches {
			found = append(found, w)
		}
	}
	return found
}

// recheck ends a watch that is no longer allowed.
func (wt *WatchTerminator) recheck(ctx context.Context, w *openWatch) {
	if err := wt.check(ctx, w); err != nil {
		klog.FromContext(ctx).V(4).Info("Terminating a watch in the virtual workspace of an export", "cluster", w.request.target.Cluster, "resource", w.request.resource.GroupResource, "err", err)
		w.cancel()
	}
}

var errChanged = errors.New("the export offers something else")

func (wt *WatchTerminator) check(ctx context.Context, w *openWatch) error {
	set, err := apiSetFor(ctx, wt.authorizer.apiSource, w.request.target)
	if err != nil {
		return err
	}
	found, err := set.find(ctx, w.request.resource.GroupResource)
	if err != nil {
		return err
	}
	if !isSameResource(found, w.request.resource) {
		return errChanged
	}
	if w.privileged {
		return nil
	}
	access := accessRequest{Attributes: w.attributes, set: set, cluster: w.request.target.Cluster}
	if result := wt.authorizer.checkBoundAPI(ctx, access); !result.allowed {
		return fmt.Errorf("%s: %w", result.reason, errors.Join(errChanged, result.err))
	}
	return nil
}

// isSameResource reports whether the current offer equals the previous one for a client.
func isSameResource(current, previous *apiResource) bool {
	schemaOf := func(o *apiResource) types.UID {
		if o.schema == nil {
			return ""
		}
		return o.schema.UID
	}
	return current != nil && current.identity == previous.identity && current.entry == previous.entry && schemaOf(current) == schemaOf(previous) && (current.claim == nil) == (previous.claim == nil) &&
		current.agnostic == previous.agnostic && slices.Equal(current.identities, previous.identities)
}

// onExportChange schedules a check of all watches.
func (wt *WatchTerminator) onExportChange(bindings.ExportKey) {
	select {
	case wt.exportChanges <- struct{}{}:
	default: // a check is pending
	}
}

// Run checks watches on changes of bindings and exports until the context is done. Every replica of a shard runs it.
func (wt *WatchTerminator) Run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		wt.recheckOnChanges(ctx, wt.exportChanges, func(*openWatch) bool { return true })
	})
	all.Go(func() { wt.recheckOnChanges(ctx, wt.identityChanges, isAgnostic) })
	informer.NewWithHandler(wt.bindings.Resource(), wt.bindings.WatchAll, informer.EventHandler[*apisv1alpha2.APIBinding]{
		OnReplace: func(context.Context, []*apisv1alpha2.APIBinding, string) error {
			wt.onExportChange(bindings.ExportKey{}) // checks all watches: bindings may have been deleted
			return nil
		},
		OnAdd:    wt.onBindingChange,
		OnUpdate: wt.onBindingChange,
		OnDelete: wt.onBindingChange,
	}).Run(ctx)
}

// recheckOnChanges checks the selected watches after each element of a channel.
func (wt *WatchTerminator) recheckOnChanges(ctx context.Context, changes <-chan struct{}, selected func(*openWatch) bool) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-changes:
		}
		for _, w := range wt.listWatches(func(logicalcluster.Name) bool { return true }) {
			if selected(w) {
				wt.recheck(ctx, w)
			}
		}
		background.Sleep(ctx, recheckInterval)
	}
}

// onBindingChange checks the watches on the logical cluster of a binding.
func (wt *WatchTerminator) onBindingChange(ctx context.Context, binding *apisv1alpha2.APIBinding) error {
	cluster := logicalcluster.Of(binding)
	for _, w := range wt.listWatches(func(name logicalcluster.Name) bool { return name == cluster }) {
		wt.recheck(ctx, w)
	}
	wt.onIdentityChange()
	return nil
}

// onBoundChange checks the watches of a logical cluster and of all, of claims without an identity, when the index of what is bound has changed.
func (wt *WatchTerminator) onBoundChange(bindings.Change) { wt.onIdentityChange() }

// onIdentityChange schedules a check of the watches of claims without an identity, if there are any.
func (wt *WatchTerminator) onIdentityChange() {
	if !slices.ContainsFunc(wt.listWatches(func(logicalcluster.Name) bool { return true }), isAgnostic) {
		return
	}
	select {
	case wt.identityChanges <- struct{}{}:
	default: // a check is pending
	}
}

// isAgnostic reports whether a watch depends on what consumers bind.
func isAgnostic(w *openWatch) bool { return w.request.resource.agnostic }
