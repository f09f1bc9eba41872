package subresources

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	entries "github.com/atoll-dev/atoll/internal/subresources"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/loopback"
	"github.com/atoll-dev/atoll/shardserver/sharding/endpoints"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

const (
	// resyncInterval is how often the referenced objects, which may be of any kind and are not watched, are read.
	resyncInterval = 5 * time.Second
	// discoveryInterval is how often a backend is asked for its verbs.
	discoveryInterval = time.Minute
	// discoveryWorkers bounds how many backends are asked at a time. Backends of tenants that do not answer delay the verbs of others,
	// not their addresses.
	discoveryWorkers = 4
	// discoveryTimeout bounds how long the backends of one export can occupy a worker.
	discoveryTimeout = 10 * time.Second
)

var exports = apisv1alpha2.Resource("apiexports")

// Discovery asks backends for their discovery, as *backends.Client does.
type Discovery interface {
	// Discover returns the resources of a version of an API at the address of a virtual workspace.
	Discover(ctx context.Context, address string, version schema.GroupVersion) ([]metav1.APIResource, error)
}

// Config holds the dependencies of the controllers.
type Config struct {
	Registry *storage.Registry
	// Clients write through the shard's own API.
	Clients *loopback.Clients
	// Schemas returns schemas.
	Schemas apiindex.SchemaGetter
	// Discovery is nil if this shard has no connection to backends.
	Discovery Discovery
	// ShardName is the name of this shard's Shard object in root.
	ShardName string
}

// Controllers returns the controllers of this package: one records addresses, and one records verbs, which waits for backends.
func Controllers(cfg Config) []controller.Controller {
	c := &recorder{cfg: cfg, exports: storage.NewReader[*apisv1alpha2.APIExport](cfg.Registry, exports), shards: endpoints.NewShardLister(cfg.Registry)}
	inputs := []controller.Source{{Resource: exports, MapFunc: keysOfExport}}
	all := []controller.Controller{{Name: "apiexport-subresource-endpoints", Sources: inputs, Reconcile: c.reconcileEndpoints}}
	if cfg.Discovery != nil {
		all = append(all, controller.Controller{
			Name: "apiexport-subresource-verbs", Sources: inputs, MaxConcurrentReconciles: discoveryWorkers, Reconcile: c.reconcileVerbs,
		})
	}
	return all
}

// keysOfExport returns the key of an export that has custom subresources, or a record of some.
func keysOfExport(event watch.Event) []controller.Request {
	export, ok := event.Object.(*apisv1alpha2.APIExport)
	if !ok || !slices.ContainsFunc(export.Spec.Resources, entries.IsEntry) && export.Annotations[apisv1alpha2.SubresourceBackendsAnnotationKey] == "" {
		return nil
	}
	return controller.RequestForObject(event)
}

type recorder struct {
	cfg     Config
	exports *storage.Reader[*apisv1alpha2.APIExport]
	shards  endpoints.ShardLister
}

// get returns an export; nil if there is nothing to record for it.
func (r *recorder) get(ctx context.Context, name string) (*apisv1alpha2.APIExport, error) {
	export, err := r.exports.Get(ctx, "", name)
	if apierrors.IsNotFound(err) || err == nil && export.DeletionTimestamp != nil {
		return nil, nil
	}
	return export, err
}

// reconcileEndpoints records the addresses in the referenced objects, and keeps the verbs of the entries.
func (r *recorder) reconcileEndpoints(ctx context.Context, key controller.Request) (controller.Result, error) {
	export, err := r.get(ctx, key.Name)
	if export == nil || err != nil {
		return controller.Result{}, err
	}
	recorded, desired := ParseRecord(export), Record{}
	for i := range export.Spec.Resources {
		entry := &export.Spec.Resources[i]
		if !entries.IsEntry(*entry) || entry.Storage.Virtual == nil {
			continue
		}
		found, err := endpoints.Read(ctx, r.cfg.Registry, logicalcluster.Of(export), entry.Storage.Virtual.Reference)
		if err != nil {
			// Requests for the subresource report it. An outage of the storage must not remove the addresses.
			klog.FromContext(ctx).V(4).Info("The endpoint slice of a custom subresource cannot be read", "export", key.String(), "entry", entry.Name, "err", err)
			if status := apierrors.ReasonForError(err); status == metav1.StatusReasonServiceUnavailable || status == metav1.StatusReasonInternalError || ctx.Err() != nil {
				found = recorded.Get(entry).Endpoints
			}
		}
		desired[keyOf(entry)] = Backend{Endpoints: found[:min(len(found), maxEndpoints)], Verbs: recorded.Get(entry).Verbs}
	}
	if err := r.write(ctx, export, desired); err != nil || len(desired) == 0 {
		return controller.Result{}, err
	}
	return controller.Result{RequeueAfter: resyncInterval}, nil
}

// reconcileVerbs records the verbs that backends have for this shard. What a backend that does not answer had before stays.
func (r *recorder) reconcileVerbs(ctx context.Context, key controller.Request) (controller.Result, error) {
	export, err := r.get(ctx, key.Name)
	if export == nil || err != nil {
		return controller.Result{}, err
	}
	desired, found := maps.Clone(ParseRecord(export)), false
	asking, cancel := context.WithTimeout(ctx, discoveryTimeout)
	defer cancel()
	answers := discoveryAnswers{}
	for i := range export.Spec.Resources {
		entry := &export.Spec.Resources[i]
		backend, ok := desired[keyOf(entry)]
		if !ok || !entries.IsEntry(*entry) || len(backend.Endpoints) == 0 {
			continue
		}
		found = true
		verbs, err := r.discoverVerbs(asking, answers, export, entry, backend)
		if err != nil {
			klog.FromContext(ctx).V(4).Info("The verbs of a custom subresource cannot be read from its backend", "export", key.String(), "entry", entry.Name, "err", err)
			continue
		}
		backend.Verbs = verbs
		desired[keyOf(entry)] = backend
	}
	if !found {
		return controller.Result{}, nil // the event of the record follows
	}
	return controller.Result{RequeueAfter: discoveryInterval}, r.write(ctx, export, desired)
}

// discoveryAnswers are the answers of backends to one reconciliation: the subresources of an export often have the same backend.
type discoveryAnswers map[discoveryQuestion]discoveryAnswer

type discoveryQuestion struct {
	address string
	version schema.GroupVersion
}

type discoveryAnswer struct {
	resources []metav1.APIResource
	err       error
}

func (a discoveryAnswers) ask(ctx context.Context, discovery Discovery, address string, version schema.GroupVersion) ([]metav1.APIResource, error) {
	question := discoveryQuestion{address, version}
	answer, known := a[question]
	if !known {
		answer.resources, answer.err = discovery.Discover(ctx, address, version)
		a[question] = answer
	}
	return answer.resources, answer.err
}

func (r *recorder) discoverVerbs(ctx context.Context, answers discoveryAnswers, export *apisv1alpha2.APIExport, entry *apisv1alpha2.ResourceSchema, backend Backend) (map[string]metav1.Verbs, error) {
	shard, err := r.shards.Get(ctx, r.cfg.ShardName)
	if err != nil {
		return nil, fmt.Errorf("reading the Shard: %w", err)
	}
	address, err := endpoints.Choose(backend.Endpoints, shard.Labels, shard.Spec.VirtualWorkspaceURL)
	if err != nil {
		return nil, err
	}
	described, err := r.cfg.Schemas.GetSchema(ctx, logicalcluster.Of(export), entry.Schema)
	if err != nil {
		return nil, fmt.Errorf("reading APIResourceSchema %q: %w", entry.Schema, err)
	}
	verbs := map[string]metav1.Verbs{}
	for _, version := range described.Spec.Versions {
		if !version.Served {
			continue
		}
		resources, err := answers.ask(ctx, r.cfg.Discovery, address, schema.GroupVersion{Group: entry.Group, Version: version.Name})
		if err != nil {
			return nil, err
		}
		for _, resource := range resources {
			if served := servedVerbs(resource.Verbs); resource.Name == entry.Name && len(served) > 0 {
				verbs[version.Name] = served
			}
		}
	}
	return verbs, nil
}

// servedVerbs returns those verbs that a request for a subresource can have, ordered.
func servedVerbs(verbs metav1.Verbs) metav1.Verbs {
	var served metav1.Verbs
	for _, verb := range entries.Verbs {
		if slices.Contains(verbs, verb) {
			served = append(served, verb)
		}
	}
	return served
}

// write writes a record if it differs.
func (r *recorder) write(ctx context.Context, export *apisv1alpha2.APIExport, record Record) error {
	text := record.String()
	if export.Annotations[apisv1alpha2.SubresourceBackendsAnnotationKey] == text {
		return nil
	}
	var value any = text
	if text == "" {
		value = nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": export.UID, "resourceVersion": export.ResourceVersion,
		"annotations": map[string]any{apisv1alpha2.SubresourceBackendsAnnotationKey: value},
	}})
	if err != nil {
		return err
	}
	if err := r.cfg.Clients.Typed.Patch(ctx, export.DeepCopy(), client.RawPatch(types.MergePatchType, patch)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("recording the backends of APIExport %q: %w", export.Name, err)
	}
	return nil
}
