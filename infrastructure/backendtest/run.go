package backendtest

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure"
	"github.com/atoll-dev/atoll/infrastructure/backend"
	"github.com/atoll-dev/atoll/infrastructure/catalogue"
	"github.com/atoll-dev/atoll/infrastructure/instance"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// pollBackoff is the backoff of polling for a condition. The intervals grow, because polling competes with the work that it waits for.
var pollBackoff = wait.Backoff{Duration: 10 * time.Millisecond, Factor: 1.3, Steps: math.MaxInt32, Cap: time.Second}

// pollInterval is how often consistently checks its condition.
const pollInterval = 100 * time.Millisecond

// suites counts the suites of a process: those that share a runtime cluster need different groups.
var suites atomic.Int32

// run is the run of a suite on a backend.
type run struct {
	suite         Suite
	group, export string
	workspace     *rest.Config  // of the provider, without faults
	c             client.Client // of that workspace
	backendName   string
	first, second *tenant
	sweepInterval time.Duration // of processes that are started
	provider      *process      // nil while none runs
}

// newRun creates the workspaces, and runs the provider with a ready Template.
func newRun(t *testing.T, suite Suite) *run {
	t.Helper()
	group := fmt.Sprintf("s%d.conformance.example.org", suites.Add(1))
	r := &run{suite: suite, group: group, export: group, sweepInterval: sweepInterval, workspace: named(suite.Environment.NewProvider(t).Config)}
	var err error
	if r.c, err = client.New(r.workspace, client.Options{Scheme: newScheme(group)}); err != nil {
		t.Fatal(err)
	}
	r.start(t)
	t.Cleanup(func() {
		if r.provider != nil {
			r.provider.stop(t)
		}
	})
	r.createTemplate(t, r.newTemplate("sample", "Sample"))
	r.waitTemplateReady(t, "sample")
	r.first, r.second = r.newTenant(t), r.newTenant(t)
	return r
}

// newScheme returns a scheme with the types of the provider and LogicalCluster.
func newScheme(group string) *runtime.Scheme {
	scheme := infrastructure.NewScheme(group)
	utilruntime.Must(corev1alpha1.AddToScheme(scheme))
	return scheme
}

// named returns a copy of a configuration with the user agent of the provider, regardless of the name of the test binary: it determines the
// field manager, which tenants see.
func named(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.UserAgent = "infrastructure-provider/conformance"
	config.QPS, config.RateLimiter = -1, nil
	config.WarningHandler = rest.NoWarnings{} // the suite deprecates versions on purpose
	return config
}

// process is one process of a provider, or of its backend alone.
type process struct {
	faults  *faults
	backend backend.Backend
	cancel  context.CancelFunc
	ended   chan error
}

// newProcess returns a process with a backend that is not running.
func (r *run) newProcess(t testing.TB) *process {
	f := newFaults()
	config := rest.CopyConfig(r.workspace)
	config.Wrap(f.wrapKcp)
	p := &process{faults: f, ended: make(chan error, 1)}
	p.backend = r.suite.New(t, Config{Group: r.group, Export: r.export, Workspace: config, SweepInterval: r.sweepInterval, Wrap: f.wrapRuntime, Log: r.suite.Log})
	return p
}

// configOf returns the client configuration of the provider's workspace for a process.
func (r *run) configOf(p *process) *rest.Config {
	config := rest.CopyConfig(r.workspace)
	config.Wrap(p.faults.wrapKcp)
	return config
}

// start runs the provider.
func (r *run) start(t testing.TB) {
	t.Helper()
	p := r.newProcess(t)
	r.backendName = p.backend.Name()
	backends := &backend.Registry{}
	if err := backends.Register(p.backend); err != nil {
		t.Fatal(err)
	}
	config := r.configOf(p)
	c, err := client.New(config, client.Options{Scheme: infrastructure.NewScheme(r.group)})
	if err != nil {
		t.Fatal(err)
	}
	r.run(t, p, func(ctx context.Context) error {
		return infrastructure.Run(ctx, infrastructure.Config{
			Workspace: config, Catalogue: catalogue.Options{Group: r.group, Export: r.export, Binders: "system:authenticated"}, Backends: backends,
			Instances:      &instance.View{Workspace: config, Client: c, Export: r.export},
			MetricsAddress: "0", HealthAddress: "0", Log: r.suite.Log,
		})
	})
}

// startBackend runs a backend without the platform, in the same state as after a start of the provider: all Templates have been set up.
func (r *run) startBackend(t testing.TB) {
	t.Helper()
	p := r.newProcess(t)
	status, err := p.backend.SetupTemplate(t.Context(), r.getTemplate(t, "sample"))
	if err != nil || !status.Ready {
		t.Fatalf("setting up after a start: %+v, %v", status, err)
	}
	config := r.configOf(p)
	r.run(t, p, func(ctx context.Context) error { return p.backend.Run(ctx, config) })
}

func (r *run) run(t testing.TB, p *process, call func(context.Context) error) {
	t.Helper()
	if r.provider != nil {
		t.Fatal("the provider runs already")
	}
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(context.Background())
	go func() { p.ended <- call(ctx) }()
	r.provider = p
}

// stop ends the provider like a signal does.
func (r *run) stop(t testing.TB) {
	t.Helper()
	r.provider.stop(t)
	r.provider = nil
}

// kill ends the provider like a crash does: none of its requests reach a server from then on.
func (r *run) kill(t testing.TB) {
	t.Helper()
	r.provider.faults.kill()
	r.stop(t)
}

func (p *process) stop(t testing.TB) {
	t.Helper()
	p.cancel()
	select {
	case err := <-p.ended:
		if err != nil && !p.faults.isDead() {
			t.Errorf("the provider ended: %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the provider does not end")
	}
}

// eventually polls until a condition returns nil.
func (r *run) eventually(t testing.TB, what string, condition func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), r.suite.Timeout)
	defer cancel()
	last := context.DeadlineExceeded
	err := pollBackoff.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		if err := condition(ctx); err == nil || ctx.Err() == nil {
			last = err
		}
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: %v", what, last)
	}
}

// consistently polls for a duration, and fails if the condition returns an error.
func (r *run) consistently(t testing.TB, what string, duration time.Duration, condition func(context.Context) error) {
	t.Helper()
	var failed error
	err := wait.PollUntilContextTimeout(context.Background(), pollInterval, duration, true, func(ctx context.Context) (bool, error) {
		if err := condition(ctx); err != nil && ctx.Err() == nil {
			failed = err
		}
		return failed != nil, nil
	})
	if failed != nil || err == nil {
		t.Fatalf("%s: %v", what, failed)
	}
}

// clusterOf returns the name of the logical cluster of a workspace.
func (r *run) clusterOf(t testing.TB, c client.Client) logicalcluster.Name {
	t.Helper()
	cluster := &corev1alpha1.LogicalCluster{}
	r.eventually(t, "reading a workspace", func(ctx context.Context) error {
		return c.Get(ctx, client.ObjectKey{Name: corev1alpha1.LogicalClusterName}, cluster)
	})
	return logicalcluster.Of(cluster)
}
