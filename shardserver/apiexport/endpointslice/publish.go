package endpointslice

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
	exportbindings "github.com/atoll-dev/atoll/shardserver/apiindex/bindings"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/sharding/publisher"
)

// ConsumersSource publishes an ExportConsumers object for each export with consumers on this shard, whichever shard the
// export and its endpoint slices are on.
func ConsumersSource(cfg Config) publisher.Source {
	s := &consumersSource{cfg}
	return publisher.Source{
		Resource: consumers,
		Inputs: []controller.Source{
			{Resource: bindings, MapFunc: s.bindingKeys, WatchFunc: newBindingReader(cfg).WatchMoving},
			{Resource: exports, MapFunc: s.exportKeys, Global: true},
		},
		Desired: s.desiredObject,
	}
}

type consumersSource struct{ cfg Config }

// bindingKeys returns the export of a binding, from its status or else by resolving its reference.
func (s *consumersSource) bindingKeys(event watch.Event) []controller.Request {
	binding, ok := event.Object.(*apisv1alpha2.APIBinding)
	if !ok {
		return nil
	}
	s.cfg.Consumers.Observe(binding, event.Type == watch.Deleted)
	reference, err := apiindex.ReferenceOf(binding)
	if err != nil {
		return nil
	}
	if cluster, err := logicalcluster.ParseName(binding.Status.APIExportClusterName); err == nil {
		return []controller.Request{{ClusterName: cluster, Name: reference.Name}}
	}
	if export, err := s.cfg.Exports.Resolve(context.Background(), reference); err == nil {
		return newExportKeys(export)
	}
	return nil // the event of the export follows
}

// exportKeys returns the export of an event.
func (s *consumersSource) exportKeys(event watch.Event) []controller.Request {
	export, ok := event.Object.(*apisv1alpha2.APIExport)
	if !ok {
		return nil
	}
	return newExportKeys(export)
}

func newExportKeys(export *apisv1alpha2.APIExport) []controller.Request {
	return []controller.Request{{ClusterName: logicalcluster.Of(export), Name: export.Name}}
}

// desiredObject returns the ExportConsumers object of an export, or nil without consumers.
func (s *consumersSource) desiredObject(ctx context.Context, key controller.Request) (runtime.Object, error) {
	export, err := s.cfg.Exports.Get(ctx, exportbindings.ExportKey{Cluster: key.ClusterName, Name: key.Name})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := s.cfg.Consumers.WaitForSync(ctx); err != nil {
		return nil, err
	}
	if !s.cfg.Consumers.HasReferences(export) {
		return nil, nil
	}
	return &shardingv1alpha1.ExportConsumers{ObjectMeta: metav1.ObjectMeta{Name: key.Name}}, nil
}
