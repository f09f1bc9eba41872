package conformance

import (
	"cmp"
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"

	"github.com/atoll-dev/atoll/infrastructure/backend"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// Suite is what the suite needs to know of a backend.
type Suite struct {
	// Environment has the workspaces.
	Environment Environment
	// New returns the backend. It is called several times: each call stands for the start of another process, which knows nothing of
	// those before but what they have written somewhere.
	New func(t testing.TB, cfg Config) backend.Backend
	// BackendConfig is spec.backendConfig, as JSON, of a Template with the schema Schema. An instance gets the outputs endpoint, which is
	// "<name of the instance>.example.org", and size, which is spec.size; the second one may only be there once what the instance is made
	// of has that size. An instance also gets, somewhere in what it is made of, the text Confidential, which is no output.
	BackendConfig string
	// InvalidConfig is a spec.backendConfig that the backend refuses.
	InvalidConfig string
	// Made looks at what the backend has made.
	Made Made
	// Words are those that tenants must not see, such as the names of kinds, labels and programs of the backend. The case does not
	// matter. The name of the backend is among them.
	Words []string

	// Tenants is the number of tenants of F12, Instances that of the instances of each; 0 means 3 and 10.
	Tenants, Instances int
	// Timeout is how long the suite waits for anything; 0 means 1 minute.
	Timeout time.Duration
	// Log receives the log of the provider; by default, nothing does.
	Log logr.Logger
}

// Confidential is a text that BackendConfig puts into what instances are made of.
const Confidential = "known-behind-the-backend"

// Schema is the schema of the spec of instances of the suite.
const Schema = `{"type":"object","required":["size"],"properties":{"size":{"type":"string","enum":["small","large"]},"note":{"type":"string","maxLength":64}}}`

// Config is what a backend is constructed with.
type Config struct {
	// Group is the API group of the provider, Export the name of its APIExport.
	Group, Export string
	// Workspace is the client configuration of the workspace of the provider.
	Workspace *rest.Config
	// SweepInterval is how often the backend looks for workspaces that are gone.
	SweepInterval time.Duration
	// Wrap is put between the backend and servers of its own, such as a runtime cluster: with rest.Config.Wrap, for example. The suite
	// counts the writes that pass, and cuts the connections when the process shall die. A backend that does not use it is only tested as
	// far as it writes to kcp.
	Wrap func(http.RoundTripper) http.RoundTripper
	Log  logr.Logger
}

// Made looks at what a backend has made, past the backend.
type Made interface {
	// List names everything that exists of a tenant, including records that the backend keeps of instances. What it keeps of the tenant
	// itself, such as a namespace, may be left out.
	List(ctx context.Context, tenant logicalcluster.Name) ([]string, error)
	// Size returns the size that an instance has been made with, "" if nothing exists of it.
	Size(ctx context.Context, tenant logicalcluster.Name, instance string) (string, error)
	// Damage changes the size of what an instance is made of, as if somebody had done it by hand.
	Damage(ctx context.Context, tenant logicalcluster.Name, instance string) error
}

// Environment has workspaces. Servers have the feature gate CacheAPIs.
type Environment interface {
	// NewProvider creates a workspace for a provider.
	NewProvider(t testing.TB) Workspace
	// NewTenant creates a workspace for a tenant. An environment of more than one shard creates them on several, and on others than
	// those of providers.
	NewTenant(t testing.TB) Workspace
	// Delete deletes the workspace of a tenant, and waits until it is gone.
	Delete(t testing.TB, tenant Workspace)
}

// Workspace is a workspace.
type Workspace struct {
	// Name is how the environment knows it.
	Name string
	// Config is the client configuration of an administrator of the workspace, for its URL.
	Config *rest.Config
}

// sweepInterval is that of the backends in the suite.
const sweepInterval = 500 * time.Millisecond

func (s *Suite) complete() {
	s.Tenants, s.Instances = cmp.Or(s.Tenants, 3), cmp.Or(s.Instances, 10)
	s.Timeout = cmp.Or(s.Timeout, time.Minute)
	if s.Log.GetSink() == nil {
		s.Log = logr.Discard()
	}
}

// Run runs all tests of the suite on a backend, one after the other.
func Run(t *testing.T, suite Suite) {
	suite.complete()
	r := newRun(t, suite)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *run)
	}{
		{"F1 setting up twice is setting up once", testSetupTwice},
		{"F2 a configuration that is refused can be repaired", testInvalidConfig},
		{"F3 instances become ready with their outputs", testOutputs},
		{"F4 updates arrive, and what has not changed is not written", testUpdate},
		{"F5 drift is repaired or reported", testDrift},
		{"F6 deletion leaves nothing, also when it is interrupted", testDeletion},
		{"F8 tenants with equal names do not meet", testEqualNames},
		{"F9 what is left of workspaces is swept, and nothing else", testSweep},
		{"F10 tenants do not see the backend", testVocabulary},
		{"F11 dying at any step leaves no duplicate and no orphan", testKilled},
		{"F12 tenants have their turns", testFairness},
		{"F14 schemas evolve under instances", testEvolution},
		{"F7 F13 removal of a template drains its instances", testRemoval},
		{"F7 removal of a template removes what is left of instances that vanished", testLeft},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, r) })
	}
}
