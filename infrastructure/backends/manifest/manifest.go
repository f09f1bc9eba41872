package manifest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/backend"
	"github.com/atoll-dev/atoll/infrastructure/instance"
	"github.com/atoll-dev/atoll/infrastructure/runtimecluster"
	"github.com/atoll-dev/atoll/internal/expression"
)

// Name is the name of the backend.
const Name = "manifest"

// pendingInterval is how often instances that are not ready are reconciled; readyInterval is how often drift is repaired.
const pendingInterval, readyInterval = 2 * time.Second, time.Minute

// Config configures the backend.
type Config = runtimecluster.Config

// Backend implements backend.Backend.
type Backend struct{ *runtimecluster.Backend }

var _ backend.Backend = &Backend{}

// New returns the backend.
func New(cfg Config) *Backend { return &Backend{runtimecluster.NewBackend(Name, cfg)} }

// SetupTemplate implements backend.Backend. It keeps no state: everything is in the Template.
func (b *Backend) SetupTemplate(_ context.Context, t *infrastructurev1alpha1.Template) (backend.Status, error) {
	parsed, err := parseConfig(t)
	if err != nil {
		return backend.Status{Message: err.Error()}, nil
	}
	for i, m := range parsed.Manifests {
		object := unstructured.Unstructured{Object: m.Template}
		err := b.Cluster.Check(object.GroupVersionKind())
		if _, ok := errors.AsType[*runtimecluster.KindError](err); ok {
			return backend.Status{Message: fmt.Sprintf("spec.backendConfig.manifests[%d].template: %v", i, err)}, nil
		}
		if err != nil {
			return backend.Status{}, err
		}
		if err := b.Watches.Add(object.GroupVersionKind()); err != nil {
			return backend.Status{}, err
		}
	}
	return backend.Status{Ready: true}, nil
}

// TeardownTemplate implements backend.Backend.
func (b *Backend) TeardownTemplate(ctx context.Context, t *infrastructurev1alpha1.Template) error {
	return instance.Teardown(ctx, b, t)
}

// Run implements backend.Backend.
func (b *Backend) Run(ctx context.Context, export *rest.Config) error {
	return b.Serve(ctx, export, b)
}

// Apply implements instance.Handler.
func (b *Backend) Apply(ctx context.Context, inst instance.Instance) (instance.State, error) {
	parsed, err := parseConfig(inst.Template)
	if err != nil {
		return instance.State{}, fmt.Errorf("%w: %w", instance.ErrUnusableTemplate, err)
	}
	self := selfOf(inst)
	wanted, objects, err := parsed.expand(self)
	if err != nil {
		log.FromContext(ctx).Info("An instance cannot be applied", "template", inst.Template.Name, "err", err)
		return runtimecluster.InvalidValues(), nil
	}
	applied, err := b.Cluster.Apply(ctx, runtimecluster.SetOf(inst), objects)
	if refusal, ok := runtimecluster.Refusal(err); ok {
		log.FromContext(ctx).Info("An instance cannot be applied", "template", inst.Template.Name, "err", err)
		return refusal, nil
	}
	if err != nil {
		return instance.State{}, err
	}
	return parsed.state(self, wanted, applied), nil
}

// expand returns the included manifests of an instance, and their objects. It returns an error if it cannot decide about a manifest: leaving
// the manifest out would delete its object, with its data.
func (c *config) expand(self map[string]any) (wanted []manifest, objects []*unstructured.Unstructured, err error) {
	for _, m := range c.Manifests {
		included, err := m.isIncluded(self)
		if err != nil {
			return nil, nil, fmt.Errorf("object %s: includeWhen: %w", m.ID, err)
		}
		if !included {
			continue
		}
		expanded, err := expression.Expand(m.Template, self, nil)
		if err != nil {
			return nil, nil, fmt.Errorf("object %s: %w", m.ID, err)
		}
		wanted, objects = append(wanted, m), append(objects, &unstructured.Unstructured{Object: expanded.(map[string]any)})
	}
	return wanted, objects, nil
}

func (m *manifest) isIncluded(self map[string]any) (bool, error) {
	if m.IncludeWhen == "" {
		return true, nil
	}
	result, err := expression.EvaluateCEL(m.IncludeWhen, nil, self, nil)
	if err != nil {
		return false, err
	}
	included, ok := result.(bool)
	if !ok {
		return false, fmt.Errorf("the result is neither true nor false, but %T", result)
	}
	return included, nil
}

// selfOf returns the variable self of expressions. The name of the instance is shortened for names of objects. The variable does not contain
// the name of the tenant's workspace.
func selfOf(inst instance.Instance) map[string]any {
	spec, _, _ := unstructured.NestedMap(inst.Object.Object, "spec")
	return map[string]any{"metadata": map[string]any{"name": inst.RuntimeName()}, "spec": spec}
}
