package instance

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/internal/background"
	"github.com/atoll-dev/atoll/internal/workspaces"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// kind is a running watch of a kind of instances behind one URL.
type kind struct {
	kindKey
	current  atomic.Pointer[offered]
	shard    *shard
	client   dynamic.NamespaceableResourceInterface
	informer *workspaces.Informer
}

func (k *kind) template() *infrastructurev1alpha1.Template { return k.current.Load().template }

func (k *kind) get(cluster, name string) *unstructured.Unstructured {
	return k.informer.Get(workspaces.Key{Cluster: cluster, Name: name})
}

// updateInterval is the delay before the backend reads the provider's workspace again after an error.
const updateInterval = 5 * time.Second

// watch starts and stops kinds when Templates and endpoints change.
func (r *runner) watch(ctx context.Context) {
	changed := background.NewSignal()
	for {
		end, err := r.subscribe(ctx, changed.Set)
		if err == nil {
			defer end()
			break
		}
		r.failed(ctx, err)
		if !background.Sleep(ctx, updateInterval) {
			return
		}
	}
	changed.Set()
	var retry <-chan time.Time
	for {
		select {
		case <-changed:
		case <-retry:
		case <-ctx.Done():
			return
		}
		retry = nil
		if err := r.update(ctx); err != nil {
			r.failed(ctx, err)
			retry = time.After(updateInterval)
			continue
		}
		connected.WithLabelValues(r.Backend).Set(1)
	}
}

// subscribe waits until the caches of Templates and endpoints have synced, and registers notify for each change. end removes the handlers.
func (r *runner) subscribe(ctx context.Context, notify func()) (end func(), err error) {
	var ends []func()
	end = func() {
		for _, end := range ends {
			end()
		}
	}
	for _, object := range []client.Object{&infrastructurev1alpha1.Template{}, &apisv1alpha1.APIExportEndpointSlice{}} {
		watched, err := r.templates.GetInformer(ctx, object)
		if err != nil {
			end()
			return nil, err
		}
		registration, err := watched.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { notify() }, UpdateFunc: func(any, any) { notify() }, DeleteFunc: func(any) { notify() },
		})
		if err != nil {
			end()
			return nil, err
		}
		ends = append(ends, func() { _ = watched.RemoveEventHandler(registration) }) // the cache may have stopped already
	}
	return end, nil
}

// failed reports that the backend could not read its Templates and endpoints; the caller retries.
func (r *runner) failed(ctx context.Context, err error) {
	if ctx.Err() == nil {
		r.Log.Error(err, "Failed to read the workspace of the provider, will retry", "backend", r.Backend)
		connected.WithLabelValues(r.Backend).Set(0)
	}
}

// update starts and stops kinds to match the Templates and endpoints.
func (r *runner) update(ctx context.Context) error {
	var templates infrastructurev1alpha1.TemplateList
	if err := r.templates.List(ctx, &templates); err != nil {
		return err
	}
	var found apisv1alpha1.APIExportEndpointSliceList
	if err := r.templates.List(ctx, &found); err != nil {
		return err
	}
	urls := map[string][]string{} // by export
	for i := range found.Items {
		urls[found.Items[i].Name] = workspaces.ListedURLs(&found.Items[i])
	}
	if urls[r.Export] == nil {
		return nil // the server has not reported the endpoints yet
	}
	wanted, offers := map[kindKey]*offered{}, map[string]*offered{}
	connected := map[string]bool{}
	for _, url := range urls[r.Export] {
		connected[url] = true
	}
	complete := true
	for i := range templates.Items {
		t := &templates.Items[i]
		if !r.isServed(t) {
			continue
		}
		o := offer(r.offers[t.Name], t)
		offers[t.Name] = o
		for _, export := range exportsOf(t, r.Export) {
			complete = complete && urls[export] != nil
			for _, url := range urls[export] {
				connected[url] = true
				wanted[kindKey{url, gvrOf(o.template)}] = o
			}
		}
	}
	if !maps.Equal(connected, r.connected) {
		// If the namespace is gone, the provider's workspace is being deleted, and the stored URLs are not needed.
		if _, err := r.remembered().Add(ctx, slices.Collect(maps.Keys(connected))); err != nil && !isNamespaceGone(err) {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.connected, r.complete, r.offers = connected, complete, offers
	for _, k := range r.kinds.StopExcept(func(key kindKey, _ *kind) bool { return wanted[key] != nil }) {
		r.deleteMetricsOf(k.template().Name)
	}
	r.shards.StopExcept(func(url string, _ *shard) bool { return connected[url] })
	for url := range connected {
		if _, found := r.shards.Get(url); found {
			continue
		}
		if err := r.startShard(ctx, url); err != nil {
			return err
		}
	}
	for key, o := range wanted {
		running, found := r.kinds.Get(key)
		if !found {
			r.start(ctx, key, o)
			continue
		}
		if before := running.current.Swap(o); o.concerns(before) {
			running.enqueueAll(r)
		}
	}
	return nil
}

// isNamespaceGone reports whether the error of a create means that the namespace is being deleted or does not exist.
func isNamespaceGone(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// start watches a kind behind a URL.
func (r *runner) start(ctx context.Context, key kindKey, o *offered) {
	s, _ := r.shards.Get(key.url)
	k := &kind{kindKey: key, shard: s, client: s.dynamic.Resource(key.gvr)}
	k.current.Store(o)
	enqueue := func(found workspaces.Key) { r.controller.Add(request{key.url, key.gvr, found.Cluster, found.Name}) }
	k.informer = workspaces.NewInformer(k.client, "", func(*unstructured.Unstructured) workspaces.IndexKey { return workspaces.IndexKey{} }, workspaces.Handler{
		OnChange: func(change workspaces.Change) { enqueue(change.Key) },
		OnConnect: func() { // reconcile objects that are in backoff after errors
			k.enqueueAll(r)
		},
		OnDisconnect: func() {},
	})
	k.informer.TrimMetadata(trimMetadata)
	r.kinds.Start(ctx, key, k, k.informer.Run)
}

func (k *kind) enqueueAll(r *runner) {
	for _, found := range k.informer.Keys() {
		r.controller.Add(request{k.url, k.gvr, found.Cluster, found.Name})
	}
}

// offered is the latest Template together with the Template from which instances are provided until the latest is accepted.
type offered struct {
	latest *infrastructurev1alpha1.Template
	// template has the spec that was accepted last. It is the latest if no accepted spec is known, or if the Template is being deleted.
	template *infrastructurev1alpha1.Template
}

// offer returns the Template from which instances are provided after a change. Until an edit is validated, set up and exported, which
// observedGeneration reports, instances use the spec that was accepted before.
func offer(before *offered, latest *infrastructurev1alpha1.Template) *offered {
	if before == nil || isAccepted(latest) || latest.DeletionTimestamp != nil || before.template.UID != latest.UID || !isAccepted(before.template) {
		return &offered{latest, latest}
	}
	template := before.template.DeepCopy()
	template.Status.Registered, template.Status.Backend = latest.Status.Registered, latest.Status.Backend
	return &offered{latest, template}
}

// isAccepted reports whether the export offers the current spec of a Template.
func isAccepted(t *infrastructurev1alpha1.Template) bool {
	return t.Status.ObservedGeneration == t.Generation
}

// concerns reports whether instances must be reconciled because the accepted Template, its readiness or its backend has changed.
func (o *offered) concerns(before *offered) bool {
	return o.template.Generation != before.template.Generation ||
		isAccepted(o.template) != isAccepted(before.template) ||
		isReady(o.latest) && !isReady(before.latest) ||
		o.latest.Spec.Backend != before.latest.Spec.Backend ||
		o.latest.Status.Backend.ReplacedBy != before.latest.Status.Backend.ReplacedBy
}

func isReady(t *infrastructurev1alpha1.Template) bool {
	return meta.IsStatusConditionTrue(t.Status.Conditions, infrastructurev1alpha1.ConditionReady)
}

// keptMetadata are the metadata fields of instances that the cache retains.
var keptMetadata = []string{"name", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "finalizers"}

// trimMetadata removes metadata whose size tenants control: no schema bounds labels, annotations and owners.
func trimMetadata(metadata map[string]any) {
	cluster, found, _ := unstructured.NestedString(metadata, "annotations", logicalcluster.AnnotationKey)
	maps.DeleteFunc(metadata, func(name string, _ any) bool { return !slices.Contains(keptMetadata, name) })
	if found {
		metadata["annotations"] = map[string]any{logicalcluster.AnnotationKey: cluster}
	}
}
