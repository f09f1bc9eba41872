package shardserver_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// clientInformers are an informer of client-go and a cache of controller-runtime.
type clientInformers struct {
	informer toolscache.SharedIndexInformer
	cache    cache.Cache
	counters []*relists
}

func newInformers(t *testing.T, m *movable) *clientInformers {
	t.Helper()
	config, counter := counted(m.config)
	factory := dynamicinformer.NewDynamicSharedInformerFactory(dynamic.NewForConfigOrDie(config), 0)
	c := &clientInformers{informer: factory.ForResource(m.widgets).Informer(), counters: []*relists{counter}}
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	config, counter = counted(m.config)
	var err error
	if c.cache, err = cache.New(config, cache.Options{}); err != nil {
		t.Fatal(err)
	}
	c.counters = append(c.counters, counter)
	go func() { _ = c.cache.Start(t.Context()) }()
	if _, err := c.cache.GetInformer(t.Context(), &corev1.ConfigMap{}); err != nil {
		t.Fatal(err)
	}
	if !c.cache.WaitForCacheSync(t.Context()) {
		t.Fatal("the cache is not synced")
	}
	for _, counter := range c.counters {
		counter.lists.Store(0)
	}
	return c
}

func (c *clientInformers) check(t *testing.T, m *movable) {
	widget, configMap := m.create(t, m.widgets, "seen"), m.create(t, m.configMaps, "seen")
	shardtesting.Eventually(t, "the objects in the informers", func(ctx context.Context) error {
		stored, found, _ := c.informer.GetStore().GetByKey("default/seen")
		if got, ok := stored.(*unstructured.Unstructured); !found || !ok || got.GetResourceVersion() != widget.GetResourceVersion() {
			return fmt.Errorf("the informer of client-go has %v", stored)
		}
		got := &corev1.ConfigMap{}
		if err := c.cache.Get(ctx, client.ObjectKey{Namespace: "default", Name: "seen"}, got); err != nil || got.ResourceVersion != configMap.GetResourceVersion() {
			return fmt.Errorf("the cache of controller-runtime has %v, %w", got.ObjectMeta, err)
		}
		return nil
	})
	for i, counter := range c.counters {
		if lists := counter.lists.Load(); lists != 1 {
			t.Errorf("informer %d listed %d times after the move", i, lists)
		}
	}
}

// wildcardInformer is an informer on all consumers of an export.
type wildcardInformer struct {
	informer toolscache.SharedIndexInformer
}

func newWildcardInformer(t *testing.T, shard *shardtesting.Shard, m *movable, identity string) *wildcardInformer {
	t.Helper()
	config := shardtesting.At(shard.Masters(t), "*")
	gvr := m.cows
	gvr.Resource += ":" + identity
	factory := dynamicinformer.NewDynamicSharedInformerFactory(dynamic.NewForConfigOrDie(config), 0)
	w := &wildcardInformer{factory.ForResource(gvr).Informer()}
	if err := w.informer.AddIndexers(toolscache.Indexers{"cluster": func(obj any) ([]string, error) {
		object, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return nil, fmt.Errorf("%T", obj)
		}
		return []string{object.GetAnnotations()["kcp.io/cluster"] + "/" + object.GetName()}, nil
	}}); err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	return w
}

func (w *wildcardInformer) check(t *testing.T, m, neighbour *movable) {
	for i, of := range []*movable{m, neighbour, m} { // the versions go up and down
		created := of.create(t, m.cows, fmt.Sprint("mixed-", i))
		shardtesting.Eventually(t, "the object in the informer", func(context.Context) error {
			found, err := w.informer.GetIndexer().ByIndex("cluster", of.name+"/"+created.GetName())
			if err != nil || len(found) != 1 {
				return fmt.Errorf("%v, %w", found, err)
			}
			if got, ok := found[0].(*unstructured.Unstructured); !ok || got.GetResourceVersion() != created.GetResourceVersion() {
				return fmt.Errorf("got %v, want version %s", got, created.GetResourceVersion())
			}
			return nil
		})
	}
}
