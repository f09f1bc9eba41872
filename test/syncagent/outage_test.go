package syncagent

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/syncagent/options"
	"github.com/atoll-dev/atoll/syncagent/publication"
	"github.com/atoll-dev/atoll/test/installation"
	"github.com/atoll-dev/atoll/test/programs"
)

// After an outage of the service cluster, the agent syncs all changes that were made in workspaces in the meantime.
func TestServiceClusterIsDown(t *testing.T) {
	e, kind := newPublished(t)
	c := e.Consumer(t, installation.Alpha)
	changed, deleted, created := newObject(kind, "default", "changed", map[string]any{"v": "1"}), newObject(kind, "default", "deleted", map[string]any{}), newObject(kind, "default", "created", map[string]any{})
	c.New(t, changed)
	c.New(t, deleted)
	copied := e.Copy(t, kind, c, changed)
	e.Copy(t, kind, c, deleted)
	e.cluster.Kill(t)
	patch(t, c, changed, `{"spec":{"v":"2"}}`)
	if err := c.Delete(t.Context(), deleted.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	c.New(t, created)
	e.cluster.Start(shared)
	e.cluster.WaitReady(t)
	expectSpec(t, e.Service, copied, map[string]any{"v": "2"})
	e.Copy(t, kind, c, created)
	expectGone(t, c, deleted)
	expectNoCopy(t, e, kind, c, deleted)
}

// Copies of workspaces on a shard that is down remain, and the agent syncs workspaces on others.
func TestShardIsDown(t *testing.T) {
	e := newEnv(t)
	kind := e.Define(t, "Widget")
	published := e.Publish(t, "widgets", Of(kind))
	e.Agent(t, func(o *options.Options) { o.OrphanPolicy = string(options.DeleteOrphans) })
	alpha, beta := e.Consumer(t, installation.Alpha), e.Consumer(t, installation.Beta)
	object := newObject(kind, "default", "one", map[string]any{"v": "1"})
	alpha.New(t, object)
	copied := e.Copy(t, kind, alpha, object)
	e.Kill(t, installation.Alpha)
	e.expectCondition(t, published, syncagentv1alpha1.ConditionSyncing, metav1.ConditionFalse)
	patch(t, e.Service, copied, `{"spec":{"local":"yes"}}`) // an event of a copy without source
	for n := range 5 {
		other := newObject(kind, "default", fmt.Sprintf("w%d", n), map[string]any{})
		beta.New(t, other)
		e.Copy(t, kind, beta, other)
	}
	e.Copy(t, kind, alpha, object)
	e.Restart(shared, installation.Alpha) // it outlives the test
	e.WaitReady(t, installation.Alpha)
	shardtesting.Eventually(t, "the object can be changed", func(ctx context.Context) error {
		return alpha.Patch(ctx, object.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"v":"2"}}`)))
	})
	expectSpec(t, e.Service, copied, map[string]any{"v": "2", "local": "yes"})
	e.expectCondition(t, published, syncagentv1alpha1.ConditionSyncing, metav1.ConditionTrue)
}

// start runs the agent as the binary.
func (e *env) start(t *testing.T, o *options.Options, more ...string) *programs.Process {
	t.Helper()
	args := append([]string{
		"--kcp-kubeconfig=" + o.KcpKubeconfig, "--kubeconfig=" + o.Kubeconfig, "--apiexportendpointslice-ref=" + o.EndpointSlice,
		"--namespace=" + o.Namespace, "--agent-name=" + o.AgentName, "--published-resource-selector=" + o.PublishedResourceSelector, "--metrics-address=0",
	}, more...)
	return programs.Start(t, t.TempDir(), filepath.Join(shared.Directory(), "bin", "sync-agent"), args...)
}

// Independent of how often the agent is killed: finally every object has one copy with its content, and deleted objects have neither a
// copy nor a state.
func TestAgentIsKilled(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	kind := e.Define(t, "Widget")
	e.Publish(t, "widgets", Of(kind))
	c := e.Consumer(t, installation.Beta)
	o := e.Options(t)
	const count = 24
	var objects []*unstructured.Unstructured
	process := e.start(t, o)
	for n := range count {
		object := newObject(kind, "default", fmt.Sprintf("w%d", n), map[string]any{"v": "0"})
		c.New(t, object)
		objects = append(objects, object)
		if n > 0 {
			patch(t, c, objects[n-1], `{"spec":{"v":"1"}}`)
		}
		if n%4 == 3 {
			if err := c.Delete(t.Context(), objects[n-2].DeepCopy()); err != nil {
				t.Fatal(err)
			}
		}
		if n%6 == 5 { // at any point of the running passes
			time.Sleep(time.Duration(rand.IntN(400)) * time.Millisecond)
			process.Signal(t, syscall.SIGKILL)
			process.Exit(t)
			process = e.start(t, o)
		}
	}
	live := 0
	for n, object := range objects {
		if n%4 == 1 {
			expectGone(t, c, object)
			expectNoCopy(t, e, kind, c, object)
			continue
		}
		live++
		want := map[string]any{"v": "1"}
		if n == count-1 {
			want["v"] = "0"
		}
		expectSpec(t, e.Service, e.Copy(t, kind, c, object), want)
	}
	shardtesting.Eventually(t, "there is one state per object", func(ctx context.Context) error {
		states := &corev1.SecretList{}
		err := e.Service.List(ctx, states, client.InNamespace(e.Namespace), client.MatchingLabels{publication.LabelObjectState: "true"})
		if err == nil && len(states.Items) != live {
			err = fmt.Errorf("there are %d, want %d", len(states.Items), live)
		}
		return err
	})
}

// One of two replicas works; the other one continues when it is killed.
func TestI1LeaderIsKilled(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	kind := e.Define(t, "Widget")
	e.Publish(t, "widgets", Of(kind))
	c := e.Consumer(t, installation.Alpha)
	o := e.Options(t)
	first := e.start(t, o, "--enable-leader-election")
	before := newObject(kind, "default", "before", map[string]any{})
	c.New(t, before)
	copied := e.Copy(t, kind, c, before)
	second := e.start(t, o, "--enable-leader-election")
	first.Signal(t, syscall.SIGKILL)
	first.Exit(t)
	after := newObject(kind, "default", "after", map[string]any{})
	c.New(t, after)
	patch(t, c, before, `{"spec":{"v":"2"}}`)
	e.Copy(t, kind, c, after)
	expectSpec(t, e.Service, copied, map[string]any{"v": "2"})
	e.Copy(t, kind, c, before)
	second.Stop(t)
	if code := second.Exit(t); code != 0 {
		t.Errorf("the second replica ended with %d after SIGTERM", code)
	}
}
