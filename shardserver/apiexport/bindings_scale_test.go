package apiexport_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// TestManyBindingsOfOneExport checks that one more binding adds index entries only, and no goroutines.
func TestManyBindingsOfOneExport(t *testing.T) {
	const workspaces = 200
	s := newEnv(t)
	provider := s.newWorkspaces("provider")[0]
	s.Client = s.Shard.Client(t, s.Masters(t)) // logical clusters without workspaces are created quickly
	consumers := make([]string, workspaces)
	for i := range consumers {
		consumers[i] = fmt.Sprintf("consumer-%d", i)
		if err := s.Create(clusterContext(consumers[i]), &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, consumer := range consumers {
		s.expectReservations(consumer, nil)
	}
	s.NewExport(t, provider, "widgets", s.newResource("widgets"), "Widget")
	_, others := s.Server.Consumers().Sizes()
	s.Bind(t, consumers[0], provider, "widgets")
	shardtesting.Eventually(t, "the first binding is indexed", func(ctx context.Context) error {
		_, inBindings := s.Server.Bindings().Get(shardtesting.In(ctx, consumers[0]), s.newResource("widgets"))
		if _, objects := s.Server.Consumers().Sizes(); objects != others+1 || !inBindings {
			return fmt.Errorf("%d references are indexed, want %d; bound: %t", objects, others+1, inBindings)
		}
		return nil
	})
	before := runtime.NumGoroutine()
	_, _, sets, resources := s.Server.Bindings().Sizes()

	started := time.Now()
	var group errgroup.Group
	group.SetLimit(16)
	for _, consumer := range consumers[1:] {
		group.Go(func() error { return s.Create(clusterContext(consumer), newBinding("widgets", provider, "widgets")) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, consumer := range consumers {
		s.waitForBinding(consumer, "widgets", isBound)
	}
	t.Logf("%d bindings are bound after %v", workspaces, time.Since(started).Round(time.Millisecond))
	shardtesting.Eventually(t, "the indexes", func(context.Context) error {
		if _, objects := s.Server.Consumers().Sizes(); objects != others+workspaces {
			return fmt.Errorf("%d references are indexed, want %d", objects, others+workspaces)
		}
		if _, _, setsNow, resourcesNow := s.Server.Bindings().Sizes(); setsNow != sets || resourcesNow != resources {
			return fmt.Errorf("from %d sets of %d resources to %d of %d", sets, resources, setsNow, resourcesNow)
		}
		return nil
	})
	shardtesting.Eventually(t, "goroutines", func(context.Context) error {
		if now := runtime.NumGoroutine(); now > before+workspaces/4 { // some goroutines of concurrent requests end later on a slow machine
			return fmt.Errorf("from %d to %d", before, now)
		}
		return nil
	})

	// A change of the export is copied to all bindings; an irrelevant change to none.
	started = time.Now()
	update(s, provider, "widgets", &apisv1alpha2.APIExport{}, func(export *apisv1alpha2.APIExport) {
		export.Annotations = map[string]string{"extra.apis.kcp.io/team": "red"}
	})
	for _, consumer := range consumers {
		s.waitForBinding(consumer, "widgets", func(binding *apisv1alpha2.APIBinding) error {
			if binding.Annotations["extra.apis.kcp.io/team"] != "red" {
				return fmt.Errorf("annotations are %v", binding.Annotations)
			}
			return nil
		})
	}
	t.Logf("the change was copied after %v", time.Since(started).Round(time.Millisecond))
	for _, consumer := range consumers {
		if err := s.Delete(clusterContext(consumer), newBinding("widgets", "", "")); err != nil {
			t.Fatal(err)
		}
	}
	for _, consumer := range consumers {
		s.expectDeleted(consumer, newBinding("widgets", "", ""))
	}
	shardtesting.Eventually(t, "entries of deleted bindings are removed", func(context.Context) error {
		if _, objects := s.Server.Consumers().Sizes(); objects != others {
			return fmt.Errorf("%d references are indexed, want %d", objects, others)
		}
		return nil
	})
}

// TestRestart stops the shard during reconciliations, which the next process must complete.
func TestRestart(t *testing.T) {
	s := newEnv(t)
	provider, consumer := s.newProviderAndConsumer()
	widgets, gadgets := s.newResource("widgets"), s.newResource("gadgets")
	s.NewExport(t, provider, "widgets", widgets, "Widget", withResource(gadgets)) // whose schema is missing
	s.NewExport(t, provider, "other", s.newResource("others"), "Other")
	s.createBinding(consumer, "widgets", provider, "widgets")
	deletingBinding := s.Bind(t, consumer, provider, "other")
	s.createObject(consumer, s.newResource("others"), "Other", "held", "example.io/wait")
	s.waitForBinding(consumer, "widgets", allOf(isBinding, hasCondition(apisv1alpha2.APIExportValid, apisv1alpha2.InternalErrorReason)))
	if err := s.Delete(clusterContext(consumer), deletingBinding); err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}

	shard := shardtesting.StartIn(t, s.Directory)
	s = &env{Shard: shard, Client: shard.Client(t, shard.Admin(t)), t: t}
	if err := s.Create(clusterContext(provider), shardtesting.NewSchema("v1", gadgets, "Gadget")); err != nil {
		t.Fatal(err)
	}
	s.waitForBinding(consumer, "widgets", allOf(isBound, bindsResources("gadgets", "widgets")))
	s.waitForBinding(consumer, "other", hasCondition(apisv1alpha2.BindingResourceDeleteSuccess, apisv1alpha2.SomeFinalizersRemainReason))
	s.removeFinalizers(consumer, s.newResource("others"), "held")
	s.expectDeleted(consumer, deletingBinding)
	slice := s.endpointURLs(provider, "widgets")
	if len(slice) != 1 {
		t.Errorf("endpoints are %v", slice)
	}
}

func (e *env) endpointURLs(cluster, name string) []string {
	e.t.Helper()
	slice := &apisv1alpha1.APIExportEndpointSlice{}
	if err := e.Get(clusterContext(cluster), client.ObjectKey{Name: name}, slice); err != nil {
		e.t.Fatal(err)
	}
	var urls []string
	for _, endpoint := range slice.Status.APIExportEndpoints {
		urls = append(urls, endpoint.URL)
	}
	return urls
}
