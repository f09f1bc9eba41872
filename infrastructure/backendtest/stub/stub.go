// Package stub is a backend for tests of the platform: it provides instances in a map, or none, records calls, and fails on request.
package stub

import (
	"context"
	"slices"
	"sync"

	"k8s.io/client-go/rest"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/backend"
	"github.com/atoll-dev/atoll/infrastructure/instance"
)

// Backend implements backend.Backend.
type Backend struct {
	name   string
	server *server // nil: it provides no instances

	mu         sync.Mutex
	setUp      []*infrastructurev1alpha1.Template
	tornDown   []string
	status     backend.Status
	setUpError error
	tearError  error
}

// New returns a backend of that name, which is ready, and provides no instances.
func New(name string) *Backend { return &Backend{name: name, status: backend.Status{Ready: true}} }

// Name implements backend.Backend.
func (b *Backend) Name() string { return b.name }

// SetupTemplate implements backend.Backend.
func (b *Backend) SetupTemplate(_ context.Context, t *infrastructurev1alpha1.Template) (backend.Status, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.setUp = append(b.setUp, t)
	if b.server != nil && b.status.Ready && b.setUpError == nil {
		if _, err := parseConfig(t); err != nil {
			return backend.Status{Message: err.Error()}, nil
		}
	}
	return b.status, b.setUpError
}

// TeardownTemplate implements backend.Backend.
func (b *Backend) TeardownTemplate(ctx context.Context, t *infrastructurev1alpha1.Template) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tearError != nil {
		return b.tearError
	}
	b.tornDown = append(b.tornDown, t.Name)
	if b.server == nil {
		return nil
	}
	return instance.Teardown(ctx, b.server, t)
}

// Run implements backend.Backend.
func (b *Backend) Run(ctx context.Context, export *rest.Config) error {
	if b.server != nil {
		return b.server.run(ctx, export)
	}
	<-ctx.Done()
	return nil
}

// Answer sets what SetupTemplate returns.
func (b *Backend) Answer(status backend.Status, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.status, b.setUpError = status, err
}

// FailTeardown sets what TeardownTemplate returns.
func (b *Backend) FailTeardown(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tearError = err
}

// SetUp returns the Templates that SetupTemplate was called with.
func (b *Backend) SetUp() []*infrastructurev1alpha1.Template {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.setUp)
}

// TornDown returns the names of Templates that were torn down.
func (b *Backend) TornDown() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.tornDown)
}
