package bench

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// creator creates workspaces below one parent and observes from one watch when each is Ready, as an efficient client
// would.
type creator struct {
	client client.Client
	parent string
	stream watch.Interface

	mu      sync.Mutex
	waiting map[string]chan string
}

// createdWorkspace is one workspace that became Ready.
type createdWorkspace struct {
	cluster string
	latency time.Duration
}

func newCreator(b *testing.B, shard *shardtesting.Shard, parent string) *creator {
	b.Helper()
	return newCreatorAt(b, shard.Admin(b), shard.Client(b, shard.Admin(b)), parent)
}

// newCreatorAt returns a creator for a server, with a client of it.
func newCreatorAt(b *testing.B, server *rest.Config, serverClient client.Client, parent string) *creator {
	b.Helper()
	dynamicClient, err := dynamic.NewForConfig(shardtesting.At(server, parent))
	if err != nil {
		b.Fatal(err)
	}
	c := &creator{client: serverClient, parent: parent, waiting: map[string]chan string{}}
	c.stream, err = dynamicClient.Resource(tenancyv1alpha1.SchemeGroupVersion.WithResource("workspaces")).Watch(b.Context(), metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	go c.watchWorkspaces()
	return c
}

func (c *creator) stop() { c.stream.Stop() }

func (c *creator) watchWorkspaces() {
	for event := range c.stream.ResultChan() {
		workspace, ok := event.Object.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		phase, _, _ := unstructured.NestedString(workspace.Object, "status", "phase")
		cluster, _, _ := unstructured.NestedString(workspace.Object, "spec", "cluster")
		if phase != string(corev1alpha1.LogicalClusterPhaseReady) {
			continue
		}
		c.mu.Lock()
		if ready := c.waiting[workspace.GetName()]; ready != nil {
			ready <- cluster
			delete(c.waiting, workspace.GetName())
		}
		c.mu.Unlock()
	}
}

// create creates n workspaces with concurrent writers and returns each with the time from its creation to Ready.
func (c *creator) create(b *testing.B, prefix string, n int) []createdWorkspace {
	b.Helper()
	all := make([]createdWorkspace, n)
	next := make(chan int)
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			for i := range next {
				one, err := c.createOne(fmt.Sprintf("%s-%d", prefix, i))
				if err != nil {
					b.Error(err)
				}
				all[i] = one
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	group.Wait()
	if b.Failed() {
		b.FailNow()
	}
	return all
}

func (c *creator) createOne(name string) (createdWorkspace, error) {
	ready := make(chan string, 1)
	c.mu.Lock()
	c.waiting[name] = ready
	c.mu.Unlock()
	begun := time.Now()
	workspace := &tenancyv1alpha1.Workspace{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       tenancyv1alpha1.WorkspaceSpec{Type: &tenancyv1alpha1.WorkspaceTypeReference{Name: "universal", Path: "root"}},
	}
	if err := c.client.Create(shardtesting.In(context.Background(), c.parent), workspace); err != nil {
		return createdWorkspace{}, fmt.Errorf("creating workspace %s: %w", name, err)
	}
	select {
	case cluster := <-ready:
		return createdWorkspace{cluster, time.Since(begun)}, nil
	case <-time.After(time.Minute):
		return createdWorkspace{}, fmt.Errorf("workspace %s is not Ready after a minute", name)
	}
}

func latencies(all []createdWorkspace) []time.Duration {
	durations := make([]time.Duration, 0, len(all))
	for _, one := range all {
		durations = append(durations, one.latency)
	}
	return durations
}
