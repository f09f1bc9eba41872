// Package storagetest serves a resource from an embedded etcd with the storage of a shard, for tests of storage
// readers.
package storagetest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	configmapstorage "k8s.io/kubernetes/pkg/registry/core/configmap/storage"

	"github.com/atoll-dev/atoll/internal/etcdtest"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

const pollTimeout = 20 * time.Second

// ConfigMaps is the resource of the registry.
var ConfigMaps = schema.GroupResource{Resource: "configmaps"}

// NewRegistry returns a registry with config maps in an embedded etcd, and their storage.
func NewRegistry(t *testing.T) (*storage.Registry, *configmapstorage.REST) {
	t.Helper()
	server := etcdtest.Start(t)

	config := storagebackend.NewDefaultConfig("/registry", legacyscheme.Codecs.LegacyCodec(corev1.SchemeGroupVersion))
	server.Connect(&config.Transport)

	store, err := configmapstorage.NewREST(generic.RESTOptions{
		StorageConfig:  config.ForResource(ConfigMaps),
		Decorator:      storage.WithCache(storage.CacheOptions{}),
		ResourcePrefix: "core/configmaps",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Destroy)
	registry := storage.NewRegistry(storage.Locality{})
	registry.Add(&storage.Resource{
		GVR:        ConfigMaps.WithVersion("v1"),
		Kind:       schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"},
		Namespaced: true, Store: store, Deletable: true,
	})
	WaitForCache(t, registry, store)
	return registry, store
}

// WaitForCache waits until the watch cache has everything that was written, and delivers what is written next. Until the storage has detected the
// features of etcd, watches end with an error, and the cache lists again: tests that count watches, lists or goroutines must not count these.
func WaitForCache(t *testing.T, registry *storage.Registry, store *configmapstorage.REST) {
	t.Helper()
	resource, err := registry.Get(ConfigMaps)
	if err != nil {
		t.Fatal(err)
	}
	Eventually(t, "the watch cache to deliver what is written", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		stream, err := storage.WatchAll(ctx, resource)
		if err != nil {
			return false
		}
		defer stream.Stop()
		for event := range stream.ResultChan() {
			if event.Type == watch.Bookmark {
				break
			}
		}
		Create(t, store, "probe", "x")
		Delete(t, store, "probe", "x")
		for event := range stream.ResultChan() {
			if event.Type == watch.Deleted {
				return true
			}
		}
		return false
	})
}

// Create creates a config map in a logical cluster.
func Create(t *testing.T, store *configmapstorage.REST, cluster, name string) {
	t.Helper()
	ctx := request.WithNamespace(logicalcluster.With(t.Context(), logicalcluster.MustParseName(cluster)), "default")
	ctx = request.WithRequestInfo(ctx, &request.RequestInfo{APIVersion: "v1", Resource: "configmaps"})
	obj := &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	if _, err := store.Create(ctx, obj, rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// Delete deletes a config map of a logical cluster.
func Delete(t *testing.T, store *configmapstorage.REST, cluster, name string) {
	t.Helper()
	ctx := request.WithNamespace(logicalcluster.With(t.Context(), logicalcluster.MustParseName(cluster)), "default")
	if _, _, err := store.Delete(ctx, name, rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// Eventually polls until a condition is true.
func Eventually(t *testing.T, description string, condition func() bool) {
	t.Helper()
	end := time.Now().Add(pollTimeout)
	for !condition() {
		if time.Now().After(end) {
			t.Fatalf("waited %s for %s", pollTimeout, description)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// CountingStore counts watches and can end them.
type CountingStore struct {
	storage.Store
	Watches atomic.Int64
	mu      sync.Mutex
	open    []watch.Interface
	expired bool
}

// Watch implements storage.Store.
func (s *CountingStore) Watch(ctx context.Context, opts *internalversion.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	expired := s.expired
	s.expired = false
	s.mu.Unlock()
	if expired {
		return nil, apierrors.NewResourceExpired("the resource version is too old")
	}
	stream, err := s.Store.Watch(ctx, opts)
	if err == nil {
		s.Watches.Add(1)
		s.mu.Lock()
		s.open = append(s.open, stream)
		s.mu.Unlock()
	}
	return stream, err
}

// StopAll ends all watches, as the watch cache does with slow ones. With expired, the next one is refused because its
// resource version is too old.
func (s *CountingStore) StopAll(expired bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expired = expired
	for _, stream := range s.open {
		stream.Stop()
	}
	s.open = nil
}
