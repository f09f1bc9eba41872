package backendtest

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

// Suite describes a backend to the suite.
type Suite struct {
	// Environment provides the workspaces.
	Environment Environment
	// New returns the backend. The suite calls it several times: each call simulates the start of another process, which has no state of
	// previous ones except what they have written to servers.
	New func(t testing.TB, cfg Config) backend.Backend
	// BackendConfig is spec.backendConfig, as JSON, of a Template with the schema Schema. An instance must have the output endpoint, which
	// is "<name of the instance>.example.org", and the output size, which is spec.size. The output size may be absent until the objects of
	// the instance have that size. The objects of an instance must also contain the text Confidential, which is not an output.
	BackendConfig string
	// InvalidConfig is a spec.backendConfig that the backend refuses.
	InvalidConfig string
	// Made inspects the objects of the backend.
	Made Made
	// Words are words that tenants must not see, such as the names of kinds, labels and programs of the backend. They are not case-sensitive.
	// The suite adds the name of the backend.
	Words []string

	// Tenants is the number of tenants of F12; Instances is the number of instances of each; 0 means 3 and 10.
	Tenants, Instances int
	// Timeout bounds each wait of the suite; 0 means 1 minute.
	Timeout time.Duration
	// Log receives the log of the provider; the zero value discards it.
	Log logr.Logger
}

// Confidential is a text that BackendConfig puts into the objects of instances.
const Confidential = "known-behind-the-backend"

// Schema is the schema of the spec of instances of the suite.
const Schema = `{"type":"object","required":["size"],"properties":{"size":{"type":"string","enum":["small","large"]},"note":{"type":"string","maxLength":64}}}`

// Config configures a backend.
type Config struct {
	// Group is the API group of the provider; Export is the name of its APIExport.
	Group, Export string
	// Workspace is the client configuration of the provider's workspace.
	Workspace *rest.Config
	// SweepInterval is how often the backend checks for deleted workspaces.
	SweepInterval time.Duration
	// Wrap wraps the transport between the backend and its own servers, such as a runtime cluster: with rest.Config.Wrap, for example. The
	// suite counts the writes that pass through it, and cuts the connections when it crashes the process. Without it, the suite tests only
	// writes of the backend to kcp.
	Wrap func(http.RoundTripper) http.RoundTripper
	Log  logr.Logger
}

// Made inspects what a backend has created, without using the backend.
type Made interface {
	// List names all existing objects of a tenant, including records that the backend keeps about instances. It may omit objects for the tenant
	// itself, such as a namespace.
	List(ctx context.Context, tenant logicalcluster.Name) ([]string, error)
	// Size returns the size in the objects of an instance, or "" if it has none.
	Size(ctx context.Context, tenant logicalcluster.Name, instance string) (string, error)
	// Damage changes the size in the objects of an instance, as somebody could do by hand.
	Damage(ctx context.Context, tenant logicalcluster.Name, instance string) error
}

// Environment provides workspaces. Its servers must have the feature gate CacheAPIs.
type Environment interface {
	// NewProvider creates a workspace for a provider.
	NewProvider(t testing.TB) Workspace
	// NewTenant creates a workspace for a tenant. An environment with more than one shard creates them on several shards, and on others than
	// those of providers.
	NewTenant(t testing.TB) Workspace
	// Delete deletes the workspace of a tenant, and waits until it is gone.
	Delete(t testing.TB, tenant Workspace)
}

// Workspace is a workspace.
type Workspace struct {
	// Name identifies the workspace in the environment.
	Name string
	// Config is the client configuration of an administrator of the workspace, for its URL.
	Config *rest.Config
}

// sweepInterval is the interval of the backends in the suite.
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
