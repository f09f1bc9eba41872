// Package kro is a backend whose instances are graphs of objects in a runtime cluster, written in the language of kro. It uses kro as a
// library to compile and evaluate that language. Objects are applied, recorded and deleted as in every backend. It uses no controller and no
// object of kro, and does not show tenants that kro is used.
package kro

import (
	"context"
	"errors"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/backend"
	"github.com/atoll-dev/atoll/infrastructure/instance"
	"github.com/atoll-dev/atoll/infrastructure/runtimecluster"
)

// Name is the name of the backend.
const Name = "kro"

const (
	// pendingInterval is how often instances that are not ready are reconciled; readingInterval applies if they read objects of other
	// owners, which the backend does not watch.
	pendingInterval, readingInterval = 10 * time.Second, 2 * time.Second
	// readyInterval is how often drift is repaired that caused no event.
	readyInterval = time.Minute
)

// Config configures the backend.
type Config struct {
	runtimecluster.Config
	// Discovery reads the schemas of the runtime cluster.
	Discovery discovery.DiscoveryInterface
}

// Backend implements backend.Backend.
type Backend struct {
	*runtimecluster.Backend
	graphs *graphs
}

var _ backend.Backend = &Backend{}

// New returns the backend.
func New(cfg Config) (*Backend, error) {
	shared := runtimecluster.NewBackend(Name, cfg.Config)
	c, err := newCompiler(shared.Cluster, newSchemas(cfg.Discovery))
	if err != nil {
		return nil, err
	}
	return &Backend{shared, newGraphs(c.compile)}, nil
}

// SetupTemplate implements backend.Backend. Each call checks again for kinds that the runtime cluster does not serve yet.
func (b *Backend) SetupTemplate(_ context.Context, t *infrastructurev1alpha1.Template) (backend.Status, error) {
	graph, err := b.graphs.setUp(t)
	if mistake, ok := errors.AsType[*mistakeError](err); ok {
		return backend.Status{Message: mistake.Error()}, nil
	}
	if err != nil {
		return backend.Status{}, err
	}
	for gvk := range graph.kinds {
		if err := b.Watches.Add(gvk); err != nil {
			return backend.Status{}, err
		}
	}
	return backend.Status{Ready: true}, nil
}

// TeardownTemplate implements backend.Backend.
func (b *Backend) TeardownTemplate(ctx context.Context, t *infrastructurev1alpha1.Template) error {
	b.graphs.remove(t)
	return instance.Teardown(ctx, b, t)
}

// Run implements backend.Backend.
func (b *Backend) Run(ctx context.Context, export *rest.Config) error {
	return b.Serve(ctx, export, b)
}
