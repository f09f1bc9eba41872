package syncagent

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"k8s.io/client-go/rest"

	"github.com/atoll-dev/atoll/syncagent"
	"github.com/atoll-dev/atoll/syncagent/options"
	"github.com/atoll-dev/atoll/test/installation"
)

// agent is a running agent.
type agent struct {
	stop  context.CancelFunc
	ended chan error
}

// Options returns the flags of the test's agent.
func (e *env) Options(t *testing.T) *options.Options {
	t.Helper()
	directory := t.TempDir()
	kcp, service := filepath.Join(directory, "kcp.kubeconfig"), filepath.Join(directory, "service.kubeconfig")
	installation.WriteKubeconfig(t, e.Provider, kcp)
	installation.WriteKubeconfig(t, e.cluster.Config, service)
	o := options.New()
	o.KcpKubeconfig, o.Kubeconfig, o.EndpointSlice = kcp, service, e.Name+"-endpoints"
	o.Namespace, o.AgentName, o.PublishedResourceSelector = e.Namespace, e.Name, "agent="+e.Name
	o.MetricsAddress = "0"
	return o
}

// Agent runs the agent in this process until the test ends, or Stop.
func (e *env) Agent(t *testing.T, changes ...func(*options.Options)) *agent {
	t.Helper()
	o := e.Options(t)
	for _, change := range changes {
		change(o)
	}
	completed, err := o.Complete()
	if err != nil {
		t.Fatal(err)
	}
	return e.run(t, completed)
}

// AgentOver is Agent with changed connections, for tests that count or break requests.
func (e *env) AgentOver(t *testing.T, change func(kcp, service *rest.Config)) *agent {
	t.Helper()
	completed, err := e.Options(t).Complete()
	if err != nil {
		t.Fatal(err)
	}
	change(completed.Kcp, completed.Service)
	return e.run(t, completed)
}

func (e *env) run(t *testing.T, completed *options.Completed) *agent {
	ctx, stop := context.WithCancel(context.Background())
	a := &agent{stop: stop, ended: make(chan error, 1)}
	log := testr.NewWithInterface(t, testr.Options{})
	go func() {
		a.ended <- syncagent.Run(ctx, syncagent.Config{Options: completed, Log: log, OrphanDelay: 100 * time.Millisecond, ViewInterval: time.Second})
	}()
	t.Cleanup(func() { a.Stop(t) })
	return a
}

// Stop stops the agent and waits for its end. It may be called again.
func (a *agent) Stop(t *testing.T) {
	t.Helper()
	if a.stop == nil {
		return
	}
	a.stop()
	a.stop = nil
	select {
	case err := <-a.ended:
		if err != nil {
			t.Errorf("the agent ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the agent does not end")
	}
}
