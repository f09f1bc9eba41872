package manifest

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/backend"
	"github.com/atoll-dev/atoll/infrastructure/instances"
	"github.com/atoll-dev/atoll/infrastructure/runtimecluster"
	"github.com/atoll-dev/atoll/internal/background"
	"github.com/atoll-dev/atoll/internal/expression"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// Name is the name of the backend.
const Name = "manifest"

const (
	// pendingInterval is how often objects are looked at that are not ready, readyInterval how often drift is repaired.
	pendingInterval, readyInterval = 2 * time.Second, time.Minute
	// sweepInterval is how often workspaces are looked for that are gone.
	sweepInterval = 5 * time.Minute
)

// Config configures the backend.
type Config struct {
	// Group is the API group of the provider, Export the name of its APIExport.
	Group, Export string
	// Runtime is a client of the runtime cluster, Metadata reads the metadata of its objects.
	Runtime  client.Client
	Metadata metadata.Interface
	// SweepInterval is how often workspaces are looked for that are gone; 0 means 5 minutes.
	SweepInterval time.Duration
	Log           logr.Logger
}

// Backend implements backend.Backend.
type Backend struct {
	config  Config
	cluster *runtimecluster.Cluster
	watches *runtimecluster.Watches
}

var _ backend.Backend = &Backend{}

// New returns the backend.
func New(cfg Config) *Backend {
	cfg.SweepInterval = cmp.Or(cfg.SweepInterval, sweepInterval)
	cluster := &runtimecluster.Cluster{Client: cfg.Runtime, Group: cfg.Group, Backend: Name}
	return &Backend{cfg, cluster, runtimecluster.NewWatches(cluster, cfg.Metadata)}
}

// Name implements backend.Backend.
func (b *Backend) Name() string { return Name }

// SetupTemplate implements backend.Backend. It keeps nothing: everything is in the Template.
func (b *Backend) SetupTemplate(_ context.Context, t *infrastructurev1alpha1.Template) (backend.Status, error) {
	parsed, err := parseConfig(t)
	if err != nil {
		return backend.Status{Message: err.Error()}, nil
	}
	for i, m := range parsed.Manifests {
		object := unstructured.Unstructured{Object: m.Template}
		if err := b.cluster.Check(object.GroupVersionKind()); err != nil {
			return backend.Status{Message: fmt.Sprintf("spec.backendConfig.manifests[%d].template: %v", i, err)}, nil
		}
		if err := b.watches.Add(object.GroupVersionKind()); err != nil {
			return backend.Status{}, err
		}
	}
	return backend.Status{Ready: true}, nil
}

// TeardownTemplate implements backend.Backend. The platform removes instances before.
func (b *Backend) TeardownTemplate(context.Context, *infrastructurev1alpha1.Template) error {
	return nil
}

// Run implements backend.Backend.
func (b *Backend) Run(ctx context.Context, export *rest.Config) error {
	ctx, cancel := context.WithCancel(ctx)
	var running background.Group
	running.Go(func() { b.watches.Run(ctx) })
	defer running.Wait()
	defer cancel()
	return instances.Run(ctx, instances.Options{
		Backend: Name, Group: b.config.Group, Export: b.config.Export, Workspace: export, Handler: b, Changed: b.watches.Changed(),
		SweepInterval: b.config.SweepInterval, Log: b.config.Log,
	})
}

// Tenants implements instances.Handler.
func (b *Backend) Tenants(ctx context.Context) ([]logicalcluster.Name, error) {
	return b.cluster.Tenants(ctx)
}

// Purge implements instances.Handler.
func (b *Backend) Purge(ctx context.Context, tenant logicalcluster.Name) error {
	return b.cluster.Purge(ctx, tenant)
}

// Delete implements instances.Handler.
func (b *Backend) Delete(ctx context.Context, instance instances.Instance) (bool, error) {
	return b.cluster.Delete(ctx, setOf(instance))
}

// Apply implements instances.Handler.
func (b *Backend) Apply(ctx context.Context, instance instances.Instance) (instances.State, error) {
	parsed, err := parseConfig(instance.Template)
	if err != nil {
		return instances.State{}, err // the Template says so; what runs stays as it is
	}
	self := selfOf(instance)
	var wanted []manifest
	var objects []*unstructured.Unstructured
	for _, m := range parsed.Manifests {
		if m.IncludeWhen != "" && !holds(m.IncludeWhen, self, nil) {
			continue
		}
		expanded, err := expression.Expand(m.Template, self, nil)
		if err != nil {
			return instances.State{}, fmt.Errorf("object %s: %w", m.ID, err)
		}
		wanted, objects = append(wanted, m), append(objects, &unstructured.Unstructured{Object: expanded.(map[string]any)})
	}
	applied, err := b.cluster.Apply(ctx, setOf(instance), objects)
	if err != nil {
		return instances.State{}, err
	}
	return parsed.state(self, wanted, applied)
}

// state says how an instance is whose objects were applied.
func (c *config) state(self map[string]any, wanted []manifest, applied []*unstructured.Unstructured) (instances.State, error) {
	other := map[string]any{}
	for i, m := range wanted {
		other[m.ID] = applied[i].Object
	}
	ready := 0
	for _, m := range wanted {
		if allHold(m.ReadyWhen, self, other) {
			ready++
		}
	}
	if ready < len(wanted) {
		return instances.State{Phase: infrastructurev1alpha1.PhaseProvisioning, Message: fmt.Sprintf("%d of %d parts are ready.", ready, len(wanted)), RecheckAfter: pendingInterval}, nil
	}
	outputs, err := expression.Expand(c.Outputs, self, other)
	if err != nil {
		return instances.State{}, fmt.Errorf("outputs: %w", err)
	}
	return instances.State{Phase: infrastructurev1alpha1.PhaseReady, Outputs: outputs.(map[string]any), RecheckAfter: readyInterval}, nil
}

func allHold(conditions []string, self, other map[string]any) bool {
	for _, condition := range conditions {
		if !holds(condition, self, other) {
			return false
		}
	}
	return true
}

// selfOf returns what expressions know of an instance. Names of tenants' workspaces are not part of it.
func selfOf(instance instances.Instance) map[string]any {
	spec, _, _ := unstructured.NestedMap(instance.Object.Object, "spec")
	return map[string]any{"metadata": map[string]any{"name": instance.Object.GetName()}, "spec": spec}
}

func setOf(instance instances.Instance) runtimecluster.Set {
	return runtimecluster.Set{Tenant: instance.Cluster, Template: instance.Template.Name, Version: instance.Template.Spec.Version, Instance: instance.Object.GetName()}
}

// holds evaluates a condition. One that cannot be evaluated yet does not hold: fields of the status of objects appear later.
func holds(condition string, self, other map[string]any) bool {
	result, err := expression.EvaluateCEL(condition, nil, self, other)
	return err == nil && result == true
}
