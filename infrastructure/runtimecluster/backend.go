package runtimecluster

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/instance"
	"github.com/atoll-dev/atoll/internal/background"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// sweepInterval is how often the backend checks for deleted workspaces.
const sweepInterval = 5 * time.Minute

// Config configures a backend whose instances are objects in a runtime cluster.
type Config struct {
	// Group is the API group of the provider; Export is the name of its APIExport.
	Group, Export string
	// Runtime is a client of the runtime cluster; Metadata reads the metadata of its objects.
	Runtime  client.Client
	Metadata metadata.Interface
	// Defaults configure the namespaces of tenants.
	Defaults Defaults
	// SweepInterval is how often the backend checks for deleted workspaces; 0 means 5 minutes.
	SweepInterval time.Duration
	Log           logr.Logger
}

// Backend is the common part of backends whose instances are objects in a runtime cluster. Backends add the set-up of Templates, and the
// objects to apply.
type Backend struct {
	Cluster *Cluster
	Watches *Watches
	config  Config
}

// NewBackend returns the common part of the backend of that name, which embeds it.
func NewBackend(name string, cfg Config) *Backend {
	cluster := &Cluster{Client: cfg.Runtime, Group: cfg.Group, Backend: name, Defaults: cfg.Defaults}
	return &Backend{Cluster: cluster, Watches: NewWatches(cluster, cfg.Metadata), config: cfg}
}

// Name implements backend.Backend.
func (b *Backend) Name() string { return b.Cluster.Backend }

// Serve provides instances until the context ends.
func (b *Backend) Serve(ctx context.Context, export *rest.Config, handler instance.Handler) error {
	if len(b.config.Defaults.Quota) > 0 {
		handler = &quotaHandler{handler, b.Cluster}
	}
	provider, err := identify(logr.NewContext(ctx, b.config.Log), export, b.config.Export)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	b.Cluster.SetProvider(provider)
	ctx, cancel := context.WithCancel(ctx)
	var running background.Group
	running.Go(func() { b.Watches.Run(ctx) })
	defer running.Wait()
	defer cancel()
	return instance.Run(ctx, instance.Options{
		Backend: b.Name(), Group: b.config.Group, Export: b.config.Export, Workspace: export, Handler: handler, Changed: b.Watches.Changed(),
		SweepInterval: cmp.Or(b.config.SweepInterval, sweepInterval), Log: b.config.Log,
	})
}

// Instances implements instance.Handler.
func (b *Backend) Instances(ctx context.Context) ([]instance.Identity, error) {
	sets, err := b.Cluster.allSets(ctx)
	if err != nil {
		return nil, err
	}
	found := make([]instance.Identity, len(sets))
	for i, set := range sets {
		found[i] = instance.Identity{Cluster: set.Tenant, Template: set.Template, Name: set.Instance}
	}
	return found, nil
}

// Tenants implements instance.Handler.
func (b *Backend) Tenants(ctx context.Context) ([]logicalcluster.Name, error) {
	return b.Cluster.Tenants(ctx)
}

// Purge implements instance.Handler.
func (b *Backend) Purge(ctx context.Context, tenant logicalcluster.Name) error {
	return b.Cluster.Purge(ctx, tenant)
}

// Delete implements instance.Handler. It reads only the inventory, so it does not depend on the current Template.
func (b *Backend) Delete(ctx context.Context, inst instance.Instance) (bool, error) {
	return b.Cluster.Delete(ctx, SetOf(inst))
}

// SetOf returns the set of an instance.
func SetOf(inst instance.Instance) Set {
	return Set{Tenant: inst.Cluster, Template: inst.Template.Name, Version: inst.Template.Spec.Version, Instance: inst.Object.GetName()}
}

// Incomplete returns the state of an instance whose objects are ready but lack the fields that its outputs use. The first argument names the
// fields of the Template that wait for them; if the outputs stay unknown, it is reported as an error in the Template.
func Incomplete(mistake string, recheckAfter time.Duration) instance.State {
	return instance.State{Phase: infrastructurev1alpha1.PhaseProvisioning, Message: "All parts are ready; the outputs are not known yet.", Mistake: mistake, RecheckAfter: recheckAfter}
}

// Progress returns the state of an instance whose objects are not all ready. All backends use it, so that tenants do not notice which
// backend provides an instance.
func Progress(ready, total int, recheckAfter time.Duration) instance.State {
	return instance.State{Phase: infrastructurev1alpha1.PhaseProvisioning, Message: fmt.Sprintf("%d of %d parts are ready.", ready, total), RecheckAfter: recheckAfter}
}
