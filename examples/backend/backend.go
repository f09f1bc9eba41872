package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure/backend"
	"github.com/atoll-dev/atoll/infrastructure/instance"
)

// config configures the backend.
type config struct {
	// group is the API group of the provider, export the name of its APIExport.
	group, export string
	// directory has the files.
	directory string
	// recheck is how often files are looked at, sweep how often workspaces are looked for that are gone; 0 means once a minute, and every
	// five minutes.
	recheck, sweep time.Duration
	log            logr.Logger
}

// files is a backend whose instances are files.
type files struct{ config }

var _ backend.Backend = &files{}

func newBackend(cfg config) *files {
	cfg.recheck, cfg.sweep = cmp.Or(cfg.recheck, time.Minute), cmp.Or(cfg.sweep, 5*time.Minute)
	return &files{cfg}
}

// Name is what Templates name in spec.backend.
func (f *files) Name() string { return "files" }

// backendConfig is spec.backendConfig of Templates.
type backendConfig struct {
	// Domain is the domain of the endpoints of instances.
	Domain string `json:"domain"`
	// Outputs are the inputs that tenants see in the status, as they are in the file.
	Outputs []string `json:"outputs,omitempty"`
	// Comment is written into the file.
	Comment string `json:"comment,omitempty"`
}

// parse reads backendConfig. Errors name the field.
func parse(t *infrastructurev1alpha1.Template) (*backendConfig, error) {
	if t.Spec.BackendConfig == nil {
		return nil, errors.New("spec.backendConfig: is required")
	}
	decoder := json.NewDecoder(bytes.NewReader(t.Spec.BackendConfig.Raw))
	decoder.DisallowUnknownFields()
	parsed := &backendConfig{}
	if err := decoder.Decode(parsed); err != nil {
		return nil, fmt.Errorf("spec.backendConfig: %w", err)
	}
	if parsed.Domain == "" {
		return nil, errors.New("spec.backendConfig.domain: is required")
	}
	return parsed, nil
}

// SetupTemplate says whether instances can be made. A mistake is no error: repeating the call would not help.
func (f *files) SetupTemplate(_ context.Context, t *infrastructurev1alpha1.Template) (backend.Status, error) {
	if _, err := parse(t); err != nil {
		return backend.Status{Message: err.Error()}, nil
	}
	return backend.Status{Ready: true}, nil
}

// TeardownTemplate has the files removed of instances that vanished while no provider ran. SetupTemplate makes nothing.
func (f *files) TeardownTemplate(ctx context.Context, t *infrastructurev1alpha1.Template) error {
	return instance.Teardown(ctx, f, t)
}

// Run leaves to the platform what all backends need: watches, finalizers, status, retries, and the sweep. It calls Apply, Delete, Instances,
// Tenants and Purge.
func (f *files) Run(ctx context.Context, export *rest.Config) error {
	return instance.Run(ctx, instance.Options{
		Backend: f.Name(), Group: f.group, Export: f.export, Workspace: export, Handler: f,
		SweepInterval: f.sweep, Log: f.log,
	})
}
