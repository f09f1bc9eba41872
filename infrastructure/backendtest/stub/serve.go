package stub

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/instance"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// sweepInterval is how often the backend checks for deleted workspaces.
const sweepInterval = 5 * time.Minute

// Config configures a stub that provides instances.
type Config struct {
	Name string
	// Group is the API group of the provider; Export is the name of its APIExport.
	Group, Export string
	// Runtime stores the instances.
	Runtime *Runtime
	// SweepInterval is how often the backend checks for deleted workspaces; 0 means 5 minutes.
	SweepInterval time.Duration
	Log           logr.Logger
}

// server provides instances from a Runtime. The backendConfig of its Templates may name inputs that are also outputs:
//
//	outputs: [size]
//
// Each instance has the output endpoint.
type server struct{ Config }

// NewServing returns a stub that is ready, and provides instances.
func NewServing(cfg Config) *Backend {
	cfg.SweepInterval = cmp.Or(cfg.SweepInterval, sweepInterval)
	b := New(cfg.Name)
	b.server = &server{cfg}
	return b
}

// config is backendConfig.
type config struct {
	Outputs []string `json:"outputs"`
}

func parseConfig(t *infrastructurev1alpha1.Template) (*config, error) {
	parsed := &config{}
	if t.Spec.BackendConfig == nil {
		return parsed, nil
	}
	if err := json.Unmarshal(t.Spec.BackendConfig.Raw, parsed); err != nil {
		return nil, fmt.Errorf("spec.backendConfig: %w", err)
	}
	return parsed, nil
}

func (s *server) run(ctx context.Context, export *rest.Config) error {
	return instance.Run(ctx, instance.Options{
		Backend: s.Name, Group: s.Group, Export: s.Export, Workspace: export, Handler: s, Changed: s.Runtime.changed,
		SweepInterval: s.SweepInterval, Log: s.Log,
	})
}

// Apply implements instance.Handler.
func (s *server) Apply(_ context.Context, inst instance.Instance) (instance.State, error) {
	parsed, err := parseConfig(inst.Template)
	if err != nil {
		return instance.State{}, err
	}
	spec, _, err := unstructured.NestedMap(inst.Object.Object, "spec")
	if err != nil {
		return instance.State{}, err
	}
	s.Runtime.apply(keyOf(inst), spec)
	outputs := map[string]any{"endpoint": inst.Object.GetName() + ".example.org"}
	for _, name := range parsed.Outputs {
		if value, ok := spec[name]; ok {
			outputs[name] = value
		}
	}
	return instance.State{Phase: infrastructurev1alpha1.PhaseReady, Outputs: outputs}, nil
}

// Delete implements instance.Handler.
func (s *server) Delete(_ context.Context, inst instance.Instance) (bool, error) {
	s.Runtime.delete(func(k key) bool { return k == keyOf(inst) })
	return true, nil
}

// Instances implements instance.Handler.
func (s *server) Instances(context.Context) ([]instance.Identity, error) {
	return s.Runtime.instances(), nil
}

// Tenants implements instance.Handler.
func (s *server) Tenants(context.Context) ([]logicalcluster.Name, error) {
	return s.Runtime.tenants(), nil
}

// Purge implements instance.Handler.
func (s *server) Purge(_ context.Context, tenant logicalcluster.Name) error {
	s.Runtime.delete(func(k key) bool { return k.tenant == tenant })
	return nil
}

func keyOf(inst instance.Instance) key {
	return key{inst.Cluster, inst.Template.Name, inst.Object.GetName()}
}
